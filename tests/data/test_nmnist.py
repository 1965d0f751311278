"""N-MNIST files written byte for byte, and the packed events: bits, overflow, crop, bins, damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ptq4snn.data.events import resize
from ptq4snn.data.nmnist import NMNISTNIRSamples, NMNISTSamples, read_atis
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.errors import DataError

Event = tuple[int, int, int, int]  # t, x, y, p


def atis(events: list[Event]) -> bytes:
    return b"".join((x << 32 | y << 24 | p << 23 | t).to_bytes(5, "big") for t, x, y, p in events)


def random_events(n: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    x, y, p = (rng.integers(0, end, n).tolist() for end in (34, 34, 2))
    return list(zip(np.sort(rng.integers(0, 330_000, n)).tolist(), x, y, p, strict=True))


def write_folder(root: Path, n: int = 40) -> None:
    for split in ("Train", "Test"):
        for digit in range(10):
            (root / split / str(digit)).mkdir(parents=True)
            for i in (7, 12):
                file = root / split / str(digit) / f"{i:05}.bin"
                file.write_bytes(atis(random_events(n, digit * 100 + i)))


def write_npz(path: Path, labels: list[int], **changes: np.ndarray) -> None:
    """A recording of 30 + i events for each label."""
    arrays: dict[str, Any] = {}
    for split in ("train", "test"):
        recordings = [random_events(30 + i, i) for i in range(len(labels))]
        t, x, y, p = np.array([e for r in recordings for e in r]).T
        arrays |= {
            f"{split}_t_us": t.astype(np.int32),
            **{f"{split}_{k}": v.astype(np.uint8) for k, v in (("x", x), ("y", y), ("p", p))},
            f"{split}_offsets": np.cumsum([0, *map(len, recordings)]),
            f"{split}_label": np.array(labels, np.uint8),
        }
    np.savez(path, **{**arrays, **changes})


def test_bits_and_overflow(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(
        b"\x21\x02\x80\x00\x05"  # x 33, y 2, ON, 5 us
        b"\x03\x04\x7f\xff\xff"  # OFF, the largest time
        b"\x00\xf0\x00\x00\x00"  # y 240: overflow
        b"\x05\x06\x00\x01\x00"
        b"\x00\xf0\x80\x00\x00"
        b"\x07\x08\x81\x02\x03"
    )
    events = read_atis(file)
    assert events.x.tolist() == [33, 3, 5, 7]
    assert events.y.tolist() == [2, 4, 6, 8]
    assert events.p.tolist() == [1, 0, 0, 1]
    assert events.t.tolist() == [5, 2**23 - 1, 256 + 8192, 0x010203 + 2 * 8192]


def test_folder(tmp_path: Path) -> None:
    write_folder(tmp_path)
    samples = NMNISTSamples(tmp_path, False)
    assert samples.labels.tolist() == [d for d in range(10) for _ in range(2)]
    assert samples.sorted_by_class
    x, y = samples[[13, 0]]
    assert (x.dtype, y.dtype, x.shape, y.tolist()) == (torch.float32, torch.int64, (2, 10, 2, 34, 34), [6, 0])
    expected = np.zeros((10, 2, 34, 34))
    for i, (_, column, row, p) in enumerate(random_events(40, 612)):
        expected[i // 4, p, row, column] += 1
    assert np.array_equal(x[0].numpy(), expected)


def test_sizes(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", [3, 1])
    whole = NMNISTSamples(tmp_path / "a.npz", True, Preprocessing(steps=5))[[1]][0]
    cut = NMNISTSamples(tmp_path / "a.npz", True, Preprocessing(steps=5, size=32))[[1]][0]
    half = NMNISTSamples(tmp_path / "a.npz", True, Preprocessing(steps=5, size=(17, 16)))[[1]][0]
    assert torch.equal(cut, whole[..., 1:33, 1:33])
    assert torch.equal(half, resize(whole, (17, 16)))
    assert whole.shape == (1, 5, 2, 34, 34)


def test_npz_recordings(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", [3, 1, 3])
    samples = NMNISTSamples(tmp_path / "a.npz", False)
    assert len(samples) == 3
    assert not samples.sorted_by_class
    for i in range(3):
        events = samples.events(i)
        assert [*zip(events.t, events.x, events.y, events.p, strict=True)] == random_events(30 + i, i)
    batches = list(SampleBatches(samples, 2))
    assert [y.tolist() for _, y in batches] == [[3, 1], [3]]


def test_nir_bins(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", [3, 1])
    x, _ = NMNISTNIRSamples(tmp_path / "a.npz", True)[[1]]
    assert x.shape == (1, 300, 2, 34, 34)
    expected = np.zeros((300, 2, 34, 34))
    late = 0
    for t, column, row, p in random_events(31, 1):
        if t < 300_000:
            expected[t // 1000, p, row, column] += 1
        else:
            late += 1
    assert late, "the test needs an event behind the last bin"
    assert np.array_equal(x[0].numpy(), expected)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*Train: give the folder of N-MNIST"):
        NMNISTSamples(tmp_path, True)
    with pytest.raises(DataError, match=r"there is no data file .*gone\.npz"):
        NMNISTSamples(tmp_path / "gone.npz", True)
    write_folder(tmp_path, 1)
    for file in (tmp_path / "Train" / "4").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"4 holds no \.bin files"):
        NMNISTSamples(tmp_path, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no events"),
        (b"\x00\xf0\x00\x00\x00", "holds no events"),  # an overflow only
        (atis([(1, 2, 3, 0)]) + b"\x01", "is truncated: its 6 bytes are not whole events of 5"),
        (atis([(1, 34, 3, 0)]), "is damaged or of another camera: x = 34"),
    ],
)
def test_damaged_bin(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "bad.bin"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.bin {says}"):
        read_atis(file)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("train_label", np.array([3]), "train offsets, labels and events do not belong together"),
        ("train_label", np.array([3, 10]), "train_label 10 is no digit"),
        ("train_offsets", np.array([0, 30, 60]), "do not belong together"),
        ("train_offsets", np.array([0, 70, 61]), "do not belong together"),
        ("train_offsets", np.zeros(0, int), "do not belong together"),
        ("train_x", np.zeros(3, int), "do not belong together"),
        ("train_x", np.zeros(61), "train_x is float64"),
    ],
)
def test_damaged_npz(tmp_path: Path, key: str, value: np.ndarray, says: str) -> None:
    write_npz(tmp_path / "bad.npz", [3, 1], **{key: value})
    with pytest.raises(DataError, match=rf"bad\.npz.*{says}"):
        NMNISTSamples(tmp_path / "bad.npz", True)


def test_a_recording_with_a_pixel_outside_is_named(tmp_path: Path) -> None:
    x = np.zeros(61, np.uint8)
    x[45] = 40
    write_npz(tmp_path / "bad.npz", [3, 1], train_x=x)
    samples = NMNISTSamples(tmp_path / "bad.npz", True)
    samples[[0]]
    with pytest.raises(DataError, match=r"bad\.npz, recording 1 is damaged .* x = 40"):
        samples[[1]]

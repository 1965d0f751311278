"""CIFAR10-DVS files written byte for byte: addresses, split, frames, and damaged files by name."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from ptq4snn.data.cifar10_dvs import CLASSES, CIFAR10DVSSamples, read_aedat, read_events_npz
from ptq4snn.data.events import frames_by_number, resize
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.errors import DataError

HEADER = b"#!AER-DAT2.0\r\n# This is a raw AE data file - do not edit\r\n# created Thu May 12\r\n"

Event = tuple[int, int, int, int]  # t, column, row, polarity


def aedat(events: list[Event]) -> bytes:
    """Addresses as the camera sends them: the picture lies on its side and OFF is 1."""
    data = HEADER
    for t, column, row, polarity in events:
        data += struct.pack(">II", (127 - column) << 8 | (127 - row) << 1 | (1 - polarity), t)
    return data


def random_events(n: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    x, y, p = (rng.integers(0, end, n).tolist() for end in (128, 128, 2))
    return list(zip(range(0, 7 * n, 7), x, y, p, strict=True))


def write_set(root: Path, per_class: int, suffix: str = ".aedat", n: int = 25) -> None:
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            events = random_events(n, 100 * label + i)
            file = root / name / f"cifar10_{name}_{i}{suffix}"
            if suffix == ".aedat":
                file.write_bytes(aedat(events))
            else:
                t, x, y, p = np.array(events).T
                np.savez(file, t=t.astype(np.uint32), x=x, y=y, p=p)


def test_address_bits(tmp_path: Path) -> None:
    file = tmp_path / "a.aedat"
    # y = 0x12, x = 0x34, polarity bit 0, then all address bits set, a time beyond 31 bits
    file.write_bytes(HEADER + b"\x00\x00\x12\x68\x00\x00\x01\x00" + b"\x00\x00\x7f\xff\xf0\x00\x00\x00")
    events = read_aedat(file)
    assert events.t.tolist() == [256, 0xF0000000]
    assert events.x.tolist() == [127 - 0x12, 0]
    assert events.y.tolist() == [127 - 0x34, 0]
    assert events.p.tolist() == [1, 0]
    assert (events.width, events.height) == (128, 128)


def test_both_formats_give_the_same_events(tmp_path: Path) -> None:
    events = random_events(50, 1)
    (tmp_path / "a.aedat").write_bytes(aedat(events))
    t, x, y, p = np.array(events).T
    np.savez(tmp_path / "a.npz", t=t, x=x, y=y, p=p.astype(bool))
    for read in (read_aedat(tmp_path / "a.aedat"), read_events_npz(tmp_path / "a.npz")):
        assert [*zip(read.t, read.x, read.y, read.p, strict=True)] == events


@pytest.mark.parametrize(
    ("suffix", "inside"), [(".aedat", "."), (".npz", "events_np"), (".aedat", "extract")]
)
def test_split_and_frames(tmp_path: Path, suffix: str, inside: str) -> None:
    n = 11
    write_set(tmp_path / inside, n, suffix)
    order = sorted(range(n), key=str)  # 0, 1, 10, 2: names are sorted as strings
    cut = math.ceil(0.9 * n)
    assert cut == 10
    train, test = CIFAR10DVSSamples(tmp_path, True), CIFAR10DVSSamples(tmp_path, False)
    assert [f.stem for f in train.files[:cut]] == [f"cifar10_airplane_{i}" for i in order[:cut]]
    assert [f.stem for f in test.files] == [f"cifar10_{c}_{order[-1]}" for c in CLASSES]
    assert train.labels.tolist() == [c for c in range(10) for _ in range(cut)]
    assert test.classes == 10
    assert test.sorted_by_class

    x, y = test[[7, 2]]
    assert (x.dtype, y.dtype, x.shape) == (torch.float32, torch.int64, (2, 10, 2, 128, 128))
    assert y.tolist() == [7, 2]
    expected = np.zeros((10, 2, 128, 128), np.float32)
    for i, (_, column, row, p) in enumerate(random_events(25, 700 + order[-1])):
        expected[min(i // 2, 9), p, row, column] += 1
    assert np.array_equal(x[0].numpy(), expected)


def test_steps_and_size(tmp_path: Path) -> None:
    write_set(tmp_path, 10, n=300)
    samples = CIFAR10DVSSamples(tmp_path, False, Preprocessing(size=64, steps=4))
    (x, _), *_ = SampleBatches(samples, 3)
    assert x.shape == (3, 4, 2, 64, 64)
    counts = frames_by_number(samples.events(1), 4)
    assert torch.equal(x[1], resize(torch.from_numpy(counts).float(), (64, 64)))
    assert x.sum() == pytest.approx(3 * 300 / 4, rel=0.05), (
        "a quarter of the pixels keeps a quarter of the sum"
    )
    assert CIFAR10DVSSamples(tmp_path, False, Preprocessing(size=(32, 48)))[[0]][0].shape[-2:] == (32, 48)


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no class folders airplane"):
        CIFAR10DVSSamples(tmp_path, True)
    write_set(tmp_path, 1)
    with pytest.raises(DataError, match="leaves no recordings to test with"):
        CIFAR10DVSSamples(tmp_path, False)
    (tmp_path / "frog" / "cifar10_frog_0.aedat").unlink()
    with pytest.raises(DataError, match=r"frog holds no \.aedat files"):
        CIFAR10DVSSamples(tmp_path, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an AEDAT 2.0 recording"),
        (b"\x00" * 16, "is not an AEDAT 2.0 recording"),
        (b"#!AER-DAT3.1\r\n" + b"\x00" * 8, "is not an AEDAT 2.0 recording"),
        (HEADER, "holds no events"),
        (b"#!AER-DAT2.0 without an end", "holds no events"),
        (aedat(random_events(3, 0))[:-1], "is truncated: 23 bytes are not whole events of 8"),
    ],
)
def test_damaged_aedat(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "bad.aedat"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.aedat {says}"):
        read_aedat(file)


def test_damaged_npz(tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, t=[1], x=[2], y=[3])
    with pytest.raises(DataError, match=r"bad\.npz holds no p"):
        read_events_npz(file)
    np.savez(file, t=[1], x=[128], y=[3], p=[0])
    with pytest.raises(DataError, match=r"bad\.npz is damaged or of another camera: x = 128"):
        read_events_npz(file)
    with pytest.raises(DataError, match=r"cannot read the recording .*gone\.aedat"):
        read_aedat(tmp_path / "gone.aedat")

"""CIFAR10-DVS-sim: which images, which recordings, the same bits in every order and process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ptq4snn.data import cifar10_dvs_sim
from ptq4snn.data.cifar10_dvs_sim import CAMERA, CIFAR10DVSSimSamples, first_per_class
from ptq4snn.data.event_simulator import simulate_events
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.errors import DataError

TRAIN, TEST = 15, 4


def write_cifar(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Small official binaries: images [19, 3, 32, 32] and labels, test images last."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (TRAIN + TEST, 3, 32, 32), np.uint8)
    labels = rng.integers(0, 3, TRAIN + TEST).astype(np.uint8)
    rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], 1)
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(rows[3 * i : 3 * i + 3].tobytes())
    (folder / "test_batch.bin").write_bytes(rows[TRAIN:].tobytes())
    return images, labels


def test_it_says_that_it_is_simulated() -> None:
    assert "simulated" in CIFAR10DVSSimSamples.name
    assert "SIMULATED" in (cifar10_dvs_sim.__doc__ or "")
    assert "imulated" in (CIFAR10DVSSimSamples.__doc__ or "")


def test_the_first_images_of_each_class() -> None:
    labels = np.random.default_rng(1).integers(0, 5, 200)
    taken, expected = [0] * 5, []
    for i, label in enumerate(labels):
        if taken[label] < 7:
            taken[label] += 1
            expected.append(i)
    assert first_per_class(labels, 7) == expected


def test_frames_are_those_of_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10_dvs_sim, "TEST_PER_CLASS", 1)
    images, labels = write_cifar(tmp_path)
    samples = CIFAR10DVSSimSamples(tmp_path, False, seed=5)
    first = {int(c): int(np.flatnonzero(labels[TRAIN:] == c)[0]) for c in np.unique(labels[TRAIN:])}
    chosen = sorted(first.values())
    assert samples.labels.tolist() == labels[TRAIN:][chosen].tolist()

    x, y = samples[[-1]]
    assert (x.dtype, x.shape, y.tolist()) == (torch.float32, (1, 10, 2, 32, 32), [labels[TRAIN + chosen[-1]]])
    red, green, blue = images[TRAIN + chosen[-1]] / 255
    # the recording of test image i has the number 50,000 + i
    events = simulate_events(
        0.299 * red + 0.587 * green + 0.114 * blue, CAMERA, seed=5, number=50_000 + chosen[-1]
    )
    share = len(events) // 10
    expected = np.zeros((10, 2, 32, 32))
    np.add.at(expected, (np.minimum(np.arange(len(events)) // share, 9), events.p, events.y, events.x), 1)
    # another order of the luminance sum may move an event that lies on a threshold
    assert np.abs(x[0].numpy() - expected).sum() <= 1e-3 * len(events)


def test_size_steps_and_count(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    samples = CIFAR10DVSSimSamples(tmp_path, True, Preprocessing(size=16, steps=4), count=5)
    assert len(samples) == 5
    x, _ = samples[[0, 4]]
    assert x.shape == (2, 4, 2, 16, 16)
    totals = x.sum((2, 3, 4))
    assert (totals[:, :3] == totals[:, :1]).all(), "equally many events"
    assert (totals[:, 3] - totals[:, 0] < 4).all(), "the last frame has the rest"
    assert samples.camera.amplitude == CAMERA.amplitude / 2


def test_the_same_bits_in_every_order_and_process(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    small = Preprocessing(size=8)
    forward, backward, worker = (CIFAR10DVSSimSamples(tmp_path, True, small) for _ in range(3))
    x, y = forward[list(range(TRAIN))]
    for i in reversed(range(TRAIN)):
        assert torch.equal(backward[[i]][0][0], x[i])
    batches = list(SampleBatches(worker, 8, workers=1))
    assert torch.equal(torch.cat([b for b, _ in batches]), x)
    assert torch.equal(torch.cat([b for _, b in batches]), y)
    assert torch.equal(forward[[3]][0][0], x[3]), "kept frames are not changed"
    assert not torch.equal(CIFAR10DVSSimSamples(tmp_path, True, small, seed=1)[[3]][0][0], x[3])


def test_counts_stop_at_255(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path)
    samples = CIFAR10DVSSimSamples(tmp_path, True, Preprocessing(size=8))
    monkeypatch.setattr(samples, "frames", lambda events: np.full((10, 2, 8, 8), 300))
    assert (samples[[0]][0] == 255).all()


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        CIFAR10DVSSimSamples(tmp_path, True)
    write_cifar(tmp_path)
    with pytest.raises(DataError, match="has a square sensor: give one size instead of 32 x 64"):
        CIFAR10DVSSimSamples(tmp_path, True, Preprocessing(size=(32, 64)))
    with pytest.raises(DataError, match="cannot have 0 recordings"):
        CIFAR10DVSSimSamples(tmp_path, True, count=0)
    with pytest.raises(DataError, match="0 frames"):
        CIFAR10DVSSimSamples(tmp_path, True, Preprocessing(steps=0))[[0]]

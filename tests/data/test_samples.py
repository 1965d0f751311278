"""Batches of samples: the same with and without workers, errors in one sentence, no global state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.image_layouts import write_cifar, write_imagenet
from safetensors.numpy import save_file
from torch import Tensor

from ptq4snn.data.batches import ArraySamples, file_samples
from ptq4snn.data.cifar import CifarSamples
from ptq4snn.data.imagenet import ImageNetSamples
from ptq4snn.data.samples import Preprocessing, SampleBatches
from ptq4snn.errors import DataError


def equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    return type(a) is type(b) is tuple and all(equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("indices", [None, [5, 0, 3, 3, 1]])
def test_workers_change_nothing(tmp_path: Path, indices: Sequence[int] | None) -> None:
    write_imagenet(tmp_path, ("n01440764", "n02102040"), 3)
    samples = ImageNetSamples(tmp_path, True, Preprocessing(resize=16, size=16))
    alone, helped = (SampleBatches(samples, 2, workers, indices) for workers in (0, 2))
    state = torch.random.get_rng_state()
    for _ in range(2):  # a second pass sees the same
        parts = list(alone)
        assert len(parts) == len(alone) == 3
        assert all(equal(a, b) for a, b in zip(parts, helped, strict=True))
    assert torch.equal(torch.cat([y for _, y in parts]), samples[indices or range(6)][1])
    assert torch.equal(state, torch.random.get_rng_state())


def test_unlabelled_batches_with_workers() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    parts = list(SampleBatches(ArraySamples(x), 2, 1))
    assert torch.equal(torch.cat(parts), x) and [len(p) for p in parts] == [2, 2, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_stay_one_sentence(tmp_path: Path, workers: int) -> None:
    folder, _, _ = write_cifar(tmp_path, "cifar10", "binary")
    broken = bytearray((folder / "test_batch.bin").read_bytes())
    broken[3073] = 77
    (folder / "test_batch.bin").write_bytes(broken)
    batches = SampleBatches(CifarSamples(tmp_path, "cifar10", False), 1, workers)
    with pytest.raises(DataError) as e:
        list(batches)
    assert str(e.value) == f"{folder / 'test_batch.bin'} is damaged: it has labels outside 0 .. 9"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("indices", [[4, 2, 3, 3], [0], range(1, 5), [4, 3, 2, 1, 0]])
def test_any_samples_on_any_axis(axis: int, indices: Sequence[int]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 3, 2)).astype(np.float32), np.arange(5)
    moved = np.moveaxis(x, 0, axis)
    expected = np.moveaxis(x[list(indices)], 0, axis)
    for source, labels in ((moved, y), (torch.from_numpy(moved.copy()), torch.from_numpy(y))):
        got, numbers = ArraySamples(source, labels, axis)[indices]
        assert np.array_equal(got, expected) and numbers.tolist() == list(indices)


def test_batches_do_not_share_memory_with_their_source() -> None:
    x = torch.zeros(4, 2)
    batch = ArraySamples(x)[[0, 1]]
    assert isinstance(batch, Tensor)
    batch += 1
    assert not x.any()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            np.zeros((4, 2), int),
            r"y has shape \[4, 2\] for 4 samples: give one label or one map \[H, W\] each",
        ),
        (np.zeros(3, int), r"y has shape \[3\] for 4 samples"),
        (np.array(["a"] * 4), "y holds <U1 values: store numbers"),
        (np.zeros(4), "y holds float64 values: labels are whole numbers"),
        (torch.zeros(4), "y holds torch.float32 values: labels are whole numbers"),
    ],
)
def test_labels_must_fit(y: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ArraySamples(np.zeros((4, 3)), y)


def test_fractional_labels_of_a_safetensors_file(tmp_path: Path) -> None:
    save_file({"x": np.zeros((4, 3)), "y": np.full(4, 0.5, np.float32)}, tmp_path / "d.safetensors")
    with pytest.raises(DataError, match="y holds F32 values: labels are whole numbers"):
        file_samples(tmp_path / "d.safetensors", 0)

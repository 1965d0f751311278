"""Hashes of data see every byte of every sample, and files are read once while they stay as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ptq4snn.data.batches import ArraySamples, BatchAxis, file_samples
from ptq4snn.data.data_digest import data_digest
from ptq4snn.data.samples import SampleBatches

X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3


def batches(x: Tensor, y: Tensor | None = None, size: int = 7) -> SampleBatches[Any]:
    return SampleBatches(ArraySamples(x, y), size)


def test_the_form_does_not_matter() -> None:
    found = data_digest(batches(X))
    assert found == data_digest(batches(X.clone(), size=9)) == data_digest([X[:25], X[25:]])
    assert found == data_digest([{"image": X}]) == data_digest(X.split(3))
    time_first = X.view(1, 40, 2).expand(3, 40, 2)
    assert data_digest([time_first], axis=1) == data_digest(time_first.split(9, 1), axis=1)
    for form in ((X, Y), TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), 9)):
        assert data_digest(form) == data_digest(batches(X, Y))
    assert data_digest(batches(X, Y)) == data_digest([(X, Y)]) == data_digest([{"x": X, "label": Y}])
    assert data_digest(batches(X), 20) == data_digest(batches(X[:20])) == data_digest([X], 20)


def test_every_sample_counts() -> None:
    found = data_digest(batches(X, Y))
    others = {
        data_digest(batches(X)),
        data_digest(batches(X[:39], Y[:39])),
        data_digest(batches(X.flip(0), Y)),
    }
    for i in range(40):  # 16 evenly spaced ones are not enough
        x, y = X.clone(), Y.clone()
        x[i, 1] += 1e-6
        y[i] += 1
        others |= {data_digest(batches(x, Y)), data_digest(batches(X, y))}
    assert len(others) == 83 and found not in others


class Counted(ArraySamples):
    reads = 0

    def __getitem__(self, indices: Sequence[int]) -> Any:
        type(self).reads += len(indices)
        return super().__getitem__(indices)


def settle(path: Path, seconds: int = 100) -> None:
    """As if the file had been written a while ago."""
    at = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(at, at))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "d.npz", x=X.numpy(), y=Y.numpy())
    settle(tmp_path / "d.npz")
    return tmp_path / "d.npz"


def counted(file: Path, folder: Path, indices: Sequence[int] | None = None) -> tuple[str, int]:
    opened = file_samples(file, 0)
    Counted.reads = 0
    samples = Counted(opened.x, opened.y, 0, file)
    return data_digest(SampleBatches(samples, 8, 0, indices), folder=folder), Counted.reads


def test_files_are_read_once(tmp_path: Path, file: Path) -> None:
    runs = tmp_path / "runs"
    first = counted(file, runs)
    assert first == (data_digest(batches(X, Y)), 40)
    assert counted(file, runs) == (first[0], 0)
    assert counted(file, runs, [3, 1]) == (data_digest(batches(X[[3, 1]], Y[[3, 1]])), 2)
    kept = list((runs / "data").iterdir())
    for damaged in kept:
        damaged.write_text("nonsense")
    assert counted(file, runs) == first and len(kept) == 2


def test_a_changed_file_is_read_again(tmp_path: Path, file: Path) -> None:
    runs = tmp_path / "runs"
    first, _ = counted(file, runs)
    y = Y.clone()
    y[17] = 2 - y[17]
    np.savez(file, x=X.numpy(), y=y.numpy())  # as many bytes as before
    settle(file, 50)
    other, reads = counted(file, runs)
    assert other != first and reads == 40


def test_a_file_that_just_changed_is_not_remembered(tmp_path: Path, file: Path) -> None:
    os.utime(file)
    assert counted(file, tmp_path / "runs")[1] == counted(file, tmp_path / "runs")[1] == 40


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, file: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    assert counted(file, tmp_path / "runs")[1] == 40


def test_other_axes_of_one_file_are_apart(tmp_path: Path, file: Path) -> None:
    np.save(tmp_path / "square.npy", np.arange(16.0).reshape(4, 4))
    settle(tmp_path / "square.npy")
    found = set()
    for axis in (0, 1):
        samples = SampleBatches(file_samples(tmp_path / "square.npy", axis), 4)
        found.add(data_digest(samples, axis=axis, folder=tmp_path))
    assert len(found) == 2


def test_moved_axes_come_from_the_same_files(file: Path) -> None:
    samples: Any = file_samples(file, 0)
    samples.classes = 3
    moved = BatchAxis(samples, 1).origin([0])
    assert moved is not None and list(moved.files) == [file]
    assert ArraySamples(X).origin([0]) is None

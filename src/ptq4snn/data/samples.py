"""What every data set is here: labelled samples by number, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ptq4snn.data.labels import VOID
from ptq4snn.errors import DataError, PTQ4SNNError

__all__ = [
    "VOID", "Batch", "Origin", "Preprocessing", "Readable", "SampleBatches", "Samples", "check_labels",
    "whole_labels",
]  # fmt: skip

Batch = Tensor | tuple[Tensor, Tensor]
B = TypeVar("B", bound=Batch)
B_co = TypeVar("B_co", bound=Batch, covariant=True)


class Origin(NamedTuple):
    """The files that samples are read from, and how: while neither changes, the samples are the same.

    Samples of files tell it by `origin(indices)`; those that cannot tell are read to see what they are.
    """

    files: Sequence[Path]
    settings: Any  # plain values


class Readable(Protocol[B_co]):
    """Anything that hands out batches by sample numbers, labelled or not."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Sequence[int]) -> B_co: ...


class Samples(Readable[tuple[Tensor, Tensor]], Protocol):
    """`samples[[3, 1]]` is (x [2, ...], y [2, ...]) of samples 3 and 1: float32 inputs as the models take
    them, int64 labels (class numbers [B], or maps [B, H, W] with VOID). Memory follows the batch."""

    classes: int


def whole_labels(y: Tensor) -> Tensor:
    """Labels as int64; raise unless they are whole numbers, of whatever type."""
    if y.is_floating_point():
        wrong = y[y != y.trunc()]  # NaN as well
        wrong = wrong if wrong.numel() else y[y.isinf()]
        if wrong.numel():
            raise DataError(f"a label is {float(wrong[0]):g}: labels are whole numbers, those of the classes")
    return y.long()


def check_labels(y: Tensor, outputs: int) -> None:
    """Raise unless every label is the number of an output; pixels of a map may be VOID."""
    numbers = y[y != VOID] if y.dim() == 3 else y
    wrong = numbers[(numbers < 0) | (numbers >= outputs)]
    if wrong.numel():
        raise DataError(
            f"a label is {int(wrong[0])}, but the model has the outputs 0 to {outputs - 1}: "
            "give the data set that it is for, or build it with as many classes"
        )


@dataclass(frozen=True)
class Preprocessing:
    """What a model expects of its data; None is the data set's published convention."""

    resize: int | None = None  # shorter side of an image before the crop
    size: int | tuple[int, int] | None = None  # height and width of the input
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    mean: tuple[float, ...] | None = None  # of pixels in 0..1
    std: tuple[float, ...] | None = None
    steps: int | None = None  # frames T of an event recording


class SampleBatches(Generic[B]):
    """Re-iterable batches of samples in order, or in the order of `indices`; `workers` read ahead."""

    def __init__(
        self, samples: Readable[B], batch_size: int, workers: int = 0, indices: Sequence[int] | None = None
    ) -> None:
        self.samples, self.batch_size, self.workers = samples, batch_size, workers
        self.indices: Sequence[int] = range(len(samples)) if indices is None else indices

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[B]:
        step = self.batch_size
        # made as they are asked for: a mapped file can hold more samples than a list of their numbers
        lists = (list(self.indices[i : i + step]) for i in range(0, len(self.indices), step))
        return self._read_ahead(lists) if self.workers else (self.samples[numbers] for numbers in lists)

    def _read_ahead(self, lists: Iterator[list[int]]) -> Iterator[B]:
        from torch.utils.data import DataLoader

        loader: DataLoader[B | PTQ4SNNError] = DataLoader(
            _Guarded(self.samples),  # type: ignore[arg-type]
            batch_size=None,
            sampler=lists,
            num_workers=self.workers,
            collate_fn=_unchanged,  # the default makes lists of tuples
            generator=torch.Generator(),  # else the workers' seed is drawn from the global state
        )
        for batch in loader:
            if isinstance(batch, PTQ4SNNError):
                raise batch
            yield batch


class _Guarded(Generic[B]):
    """Errors leave a worker as values: DataLoader would bury their one sentence in a traceback."""

    def __init__(self, samples: Readable[B]) -> None:
        self.samples = samples

    def __getitem__(self, indices: list[int]) -> B | PTQ4SNNError:
        try:
            return self.samples[indices]
        except PTQ4SNNError as e:
            return e


def _unchanged(batch: B) -> B:
    return batch

"""Data that the user's own code makes: what it raises is told in one sentence, with the batch or sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import count
from typing import Any

from ptq4snn.data.samples import Origin, SampleBatches
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.factory import one_line
from ptq4snn.memory import ran_out

__all__ = ["UsersSamples", "users_batches"]


@contextmanager
def _told(spec: str, where: str) -> Iterator[None]:
    """Around the user's code and nothing else: a fault of ours must stay a traceback."""
    try:
        yield
    except PTQ4SNNError:
        raise
    except Exception as why:
        if ran_out(why):
            raise
        raise DataError(f"{spec} raised {type(why).__name__} at {where}: {one_line(why)}") from why


class UsersSamples:
    """Samples by their numbers, one or several at a time, as the user's object reads them."""

    def __init__(self, samples: Any, spec: str) -> None:
        self.samples, self.spec = samples, spec
        self.classes = getattr(samples, "classes", None)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, indices: int | Sequence[int]) -> Any:
        with _told(self.spec, _named(indices)):
            return self.samples[indices]

    def origin(self, indices: Sequence[int]) -> Origin | None:
        found: Origin | None = self.samples.origin(indices) if hasattr(self.samples, "origin") else None
        kind = type(self.samples).__name__
        return None if found is None else Origin(found.files, [kind, found.settings])


def _named(indices: int | Sequence[int]) -> str:
    if not isinstance(indices, Sequence):
        return f"sample {indices}"
    if len(indices) == 1:
        return f"sample {indices[0]}"
    return f"one of {len(indices)} samples, {indices[0]} to {indices[-1]}"


class _Batches:
    """The user's iterable of batches."""

    def __init__(self, batches: Iterable[Any], spec: str) -> None:
        self.batches, self.spec = batches, spec

    def __iter__(self) -> Iterator[Any]:
        with _told(self.spec, "its first batch"):
            rest = iter(self.batches)
        for number in count():
            with _told(self.spec, f"batch {number}"):
                try:
                    batch = next(rest)
                except StopIteration:
                    return
            yield batch


class _Counted(_Batches):
    """The same of one that knows how many there are."""

    batches: Any

    def __len__(self) -> int:
        return len(self.batches)


def users_batches(made: Any, spec: str) -> Any:
    """The batches that a factory returned; plain containers cannot fail, and our own classes are ours."""
    if isinstance(made, SampleBatches):
        if type(made.samples).__module__.startswith("ptq4snn."):
            return made
        samples: Any = UsersSamples(made.samples, spec)
        return SampleBatches(samples, made.batch_size, made.workers, made.indices)
    if isinstance(made, Mapping | list | tuple | str | bytes):
        return made
    kind = _Counted if isinstance(made, Sized) else _Batches
    return kind(made, spec)

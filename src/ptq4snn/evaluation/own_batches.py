"""Which test batches a process of a team runs, and no more samples than are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from ptq4snn.data.samples import SampleBatches
from ptq4snn.forms import inputs_and_labels
from ptq4snn.team import Team

__all__ = ["own_batches"]


def own_batches(
    batches: Iterable[Any], limit: int | None, batch_axis: int, team: Team
) -> tuple[Iterator[tuple[int, tuple[int, Any]]], int | None]:
    """The number of each batch of this process, with the samples before it and its content; and how many
    batches there are, if that is known.

    Of our own data sets nothing else is read; of other iterables the rest is skipped.
    """
    if isinstance(batches, SampleBatches) and team.size > 1:
        return _read(batches, limit, team)
    numbered = team.deal(_counted(_limited(batches, limit, batch_axis), batch_axis))
    return numbered, len(batches) if isinstance(batches, Sized) else None


def _read(batches: SampleBatches[Any], limit: int | None, team: Team) -> tuple[Iterator[Any], int]:
    kept, step = batches.indices[:limit], batches.batch_size
    numbers = [n for n in range(-(-len(kept) // step)) if team.mine(n)]
    own = [i for n in numbers for i in kept[n * step : (n + 1) * step]]
    read = SampleBatches(batches.samples, step, batches.workers, own)
    return ((n, (n * step, batch)) for n, batch in zip(numbers, read, strict=True)), len(numbers)


def _counted(batches: Iterable[Any], batch_axis: int) -> Iterator[tuple[int, Any]]:
    """Each batch behind the number of samples before it."""
    before = 0
    for batch in batches:
        yield before, batch
        x = inputs_and_labels(batch)[0]
        before += x.shape[batch_axis] if x.dim() > batch_axis else 0


def _limited(batches: Iterable[Any], limit: int | None, batch_axis: int) -> Iterator[Any]:
    """Until so many samples have come, the last batch cut."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches:
        x, y = inputs_and_labels(batch)
        x = x.narrow(batch_axis, 0, min(x.shape[batch_axis], left)) if x.dim() > batch_axis else x
        left -= x.shape[batch_axis] if x.dim() > batch_axis else 0
        yield x if y is None else (x, y[: x.shape[batch_axis]])
        if left <= 0:
            return

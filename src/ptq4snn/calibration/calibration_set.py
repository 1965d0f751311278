"""The calibration set: whatever batches the user gives, re-chunked to fixed micro-batches.

Samples are read once, in order. The first ones are kept: `holdout` of them choose, as many again do nothing
but report, the next `keep` are for the sensitivity. Memory follows these two numbers, not the data set,
unless all samples are to be `remember`ed, packed, for stages that need several passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration.packed import PackedBatch, pack
from ptq4snn.errors import DataError
from ptq4snn.forms import batches_in, inputs_and_labels

__all__ = ["Calibration", "batches_of", "micro_batches", "refuse_unbatched", "sizes"]


def batches_of(samples: Any, batch_axis: int = 0) -> Iterator[Tensor]:
    """Input batches of a tensor, a data set, a DataLoader or any iterable of batches; of (x, y) x."""
    for batch in batches_in(samples, batch_axis, labels=False):
        yield inputs_and_labels(batch, labels=False)[0]


def check(x: Tensor, like: Tensor | None, batch_axis: int, before: int = 0) -> None:
    """Raise unless `x` is a batch of finite numbers, like others; `before` samples came before it."""
    if x.dim() <= batch_axis:
        raise DataError(f"a batch of shape {list(x.shape)} has no batch axis {batch_axis}")
    if like is not None:
        a, b = sizes(x, batch_axis), sizes(like, batch_axis)
        if len(a) != len(b) or sum(m != n for m, n in zip(a, b, strict=True)) > 1:  # one may be that of time
            raise DataError(f"samples have different shapes: {a} after {b} (without batch axis {batch_axis})")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        sound = torch.isfinite(x).movedim(batch_axis, 0).flatten(1).all(1)
        raise DataError(
            f"sample {before + int(sound.int().argmin())}, counted from 0 as they are read, holds NaN or "
            "infinite values; clean the data first"
        )


def sizes(x: Tensor, batch_axis: int) -> list[int]:
    """The shape of one sample."""
    return [n for d, n in enumerate(x.shape) if d != batch_axis]


def check_lengths(x: Tensor, like: Tensor, batch_axis: int, steps: int) -> None:
    """Samples may differ along one axis: that of the time steps, of which `like` has `steps`."""
    a, b = sizes(x, batch_axis), sizes(like, batch_axis)
    if odd := [n for m, n in zip(a, b, strict=True) if m != n and n != steps]:
        raise DataError(
            f"samples have different shapes: {a} after {b} (without batch axis {batch_axis}), and the axis "
            f"of {odd[0]} is not that of the {steps} time steps, which alone may differ"
        )


class _FirstConvolution(Exception):
    """The name of the first convolution that runs, and what it sees."""


def refuse_unbatched(model: nn.Module, x: Tensor, batch_axis: int) -> None:
    """Raise if the first convolution sees `x` without a batch: torch takes one sample by itself, too, and its
    channels would count as samples. Nothing behind that convolution runs."""

    def look(name: str, axes: int, module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            raise _FirstConvolution(name, list(args[0].shape), axes)

    handles = [
        m.register_forward_pre_hook(partial(look, name, m.weight.dim()))
        for name, m in model.named_modules()
        if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    ]
    try:
        if handles:
            with torch.no_grad():
                model(x)
    except _FirstConvolution as found:
        name, shape, axes = found.args
        if len(shape) < axes:
            raise DataError(
                f"the samples have no batch axis: '{name}' sees shape {shape}, a batch has {axes} axes; "
                f"give batches, for one sample x.unsqueeze({batch_axis})"
            ) from None
    except Exception:  # what else is wrong is told where the model is followed
        return
    finally:
        for handle in handles:
            handle.remove()


def own(x: Tensor, device: Any) -> Tensor:
    """A copy that holds on to nothing but its own samples."""
    return x.clone(memory_format=torch.contiguous_format).to(device)


def micro_batches(
    samples: Any, size: int, batch_axis: int = 0, limit: int | None = None, device: Any = None
) -> Iterator[Tensor]:
    """Batches of exactly `size` samples (the last may be smaller), at most `limit` samples. Of recordings of
    different lengths each length has batches of its own."""
    held: dict[tuple[int, ...], list[Tensor]] = {}  # by the shape of a sample
    total = 0
    first: Tensor | None = None
    for x in batches_of(samples, batch_axis):
        check(x, first, batch_axis, total)
        first = x if first is None else first
        if limit is not None:
            x = x.narrow(batch_axis, 0, min(x.shape[batch_axis], limit - total))
        total += x.shape[batch_axis]
        parts = held.setdefault(tuple(sizes(x, batch_axis)), [])
        parts.append(x)
        count = sum(p.shape[batch_axis] for p in parts)
        if count >= size:
            joined = torch.cat(parts, batch_axis) if len(parts) > 1 else x
            for start in range(0, count - size + 1, size):
                yield own(joined.narrow(batch_axis, start, size), device)
            count %= size
            parts[:] = [joined.narrow(batch_axis, joined.shape[batch_axis] - count, count)] if count else []
        if limit is not None and total >= limit:
            break
    for parts in held.values():
        if parts:
            yield own(torch.cat(parts, batch_axis), device)
    if total == 0:
        raise DataError("no samples to calibrate with; give at least one batch")


@dataclass
class Calibration:
    """Hands out every micro-batch once and keeps the first ones."""

    samples: Any
    batch_axis: int = 0
    limit: int | None = None
    size: int = 16
    holdout: int = 128
    keep: int = 160
    device: Any = None
    remember: bool = False
    packed: list[PackedBatch] = field(default_factory=list)  # all that was streamed, if remembered
    held_out: list[Tensor] = field(default_factory=list)  # what choices are judged on
    reporting: list[Tensor] = field(default_factory=list)  # what no choice saw; empty: too few samples
    kept: list[Tensor] = field(default_factory=list)
    total: int = 0
    _stream: Iterator[Tensor] | None = None
    _ahead: list[Tensor] = field(default_factory=list)
    _kind: torch.dtype | None = None
    _apart: int = 0  # micro-batches that `stream` does not hand out
    _steps: int | None = None  # that the first sample has; where it is known, other lengths are checked

    def open(self) -> Tensor:
        """Read ahead far enough to split; returns the first micro-batch, for tracing."""
        self._stream = micro_batches(self.samples, self.size, self.batch_axis, self.limit, self.device)
        wanted = -(-self.holdout // self.size)
        for x in self._stream:
            self._ahead.append(x)
            if len(self._ahead) >= 4 * wanted:
                break
        share = min(wanted, (len(self._ahead) + 1) // 4)  # of three one each
        self.held_out, self.reporting = self._ahead[:share], self._ahead[share : 2 * share]
        self._ahead, self._apart = self._ahead[2 * share :], 2 * share
        self.total = sum(x.shape[self.batch_axis] for x in (*self.held_out, *self.reporting))
        if not self.held_out:  # too few samples to hold any out: judge on the ones there are
            self.held_out = self._ahead[:1]
        return self.held_out[0]

    def ahead(self, count: int) -> list[Tensor]:
        """The first `count` micro-batches that `stream` will hand out, or all if they are fewer; empty where
        that is not known yet."""
        read = len(self._ahead) + self._apart
        known = len(self._ahead) >= count or read < 4 * -(-self.holdout // self.size)
        return self._ahead[:count] if known else []

    def cast(self, kind: torch.dtype) -> Tensor:
        """All samples in this type from here on; returns the first micro-batch again."""
        self._kind = kind
        self.held_out, self.reporting = ([x.to(kind) for x in p] for p in (self.held_out, self.reporting))
        return self.held_out[0]

    def of_steps(self, steps: int) -> None:
        """Refuse samples that differ along another axis than that of their time steps."""
        self._steps = steps
        for x in (*self.held_out, *self.reporting):
            check_lengths(x, self.held_out[0], self.batch_axis, steps)

    def stream(self) -> Iterator[Tensor]:
        """The micro-batches that are not held out, once."""
        assert self._stream is not None
        while self._ahead:
            yield self._note(self._ahead.pop(0))
        for x in self._stream:
            yield self._note(x)

    def _note(self, x: Tensor) -> Tensor:
        x = x if self._kind is None else x.to(self._kind)
        if self._steps is not None:
            check_lengths(x, self.held_out[0], self.batch_axis, self._steps)
        self.total += x.shape[self.batch_axis]
        if sum(k.shape[self.batch_axis] for k in self.kept) < self.keep:
            self.kept.append(x)
        if self.remember:
            self.packed.append(pack(x, self.batch_axis))
        return x

    def expected(self) -> int | None:
        """How many micro-batches `stream` will hand out, if that can be known."""
        try:
            n = self.samples.shape[self.batch_axis] if isinstance(self.samples, Tensor) else None
        except IndexError:
            n = None
        n = n if n is not None else self.limit
        if n is None:
            return None
        n = min(n, self.limit) if self.limit is not None else n
        return max(1, -(-n // self.size) - self._apart)

"""Bring the operands of an operation into one storage order; most often they are in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.lowering.numbering import Split, function_of, in_own_order, number
from ptq4snn.lowering.tracked import Refused, Tracked

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["Aligned", "align", "same", "same_samples"]


@dataclass(frozen=True)
class Aligned:
    """Two values whose storage elements belong together, and the numbers of the result."""

    a: int
    b: int
    shape: tuple[int, int]
    numbers: Tensor


def align(w: Lowering, a: Tracked, b: Tracked, shape: tuple[int, ...]) -> Aligned:
    """Bring two tensors into one storage order; most often they are in it."""
    build = w.builder
    a, b = (build.whole(replace(x, numbers=x.numbers.expand(shape))) for x in (a, b))
    sa, sb = build.split(a), build.split(b)
    sample = same_samples(w, a, b, sa, sb)
    va, vb = build.of(a.value), build.of(b.value)
    swap = (va.positions * va.channels, va.positions) < (vb.positions * vb.channels, vb.positions)
    if swap:
        a, b, sa, sb, va, vb = b, a, sb, sa, vb, va
    value, storage = b.value, (va.positions, va.channels)
    direct = storage == (vb.positions, vb.channels) and same(sa.element, sb.element)
    spread = (1, va.channels) == (vb.positions, vb.channels) and same(sa.element % va.channels, sb.element)
    if not direct and not spread:
        index = function_of(sa.element, sb.element, va.positions * va.channels)
        if index is None:
            return _arranged(w, *((b, a) if swap else (a, b)), shape)
        value = build.gather(b.value, index, storage)
    numbers = number(sample, sa.element, va.positions * va.channels).expand(shape)
    return Aligned(value, a.value, storage, numbers) if swap else Aligned(a.value, value, storage, numbers)


def _arranged(w: Lowering, a: Tracked, b: Tracked, shape: tuple[int, ...]) -> Aligned:
    """Both in an order of their own, where neither is in one that serves the other."""
    build = w.builder
    sa, sb = build.split(a), build.split(b)
    both = Split(*(torch.broadcast_tensors(sa.sample, sb.sample)[0], sa.element), shape)
    positions, channels = in_own_order(both, build.of(a.value).channels)
    axes = (positions, channels)
    a, b = build.arrange(a, axes), build.arrange(b, axes)
    v = build.of(a.value)
    timed = a if build.of(a.value).time else b
    return Aligned(a.value, b.value, (v.positions, v.channels), timed.numbers)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal, also where one is spread over the other."""
    return torch.equal(*torch.broadcast_tensors(a, b))


def same_samples(w: Lowering, a: Tracked, b: Tracked, sa: Split, sb: Split) -> Tensor:
    """Step and sample of every element; a value without time is the same at every step."""
    batch = w.builder.batch
    timed_a, timed_b = w.builder.of(a.value).time, w.builder.of(b.value).time
    one, other = torch.broadcast_tensors(sa.sample, sb.sample)
    if not (torch.equal(one, other) if timed_a == timed_b else torch.equal(one % batch, other % batch)):
        raise Refused("joins different time steps or samples")
    joined: Tensor = one if timed_a or not timed_b else other
    return joined

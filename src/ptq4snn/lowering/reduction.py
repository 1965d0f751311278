"""Sums and maxima over time, positions and channels.

A reduction is a table [out, taps] for every axis that it works on: the elements that make an output element.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.lowering.numbering import Split, blanks, in_own_order, number, same_numbers, unique_rows
from ptq4snn.lowering.pool_axes import RegularPool, Table, Tables, each_axis, regular_pool, window_part
from ptq4snn.lowering.tracked import ZERO, Refused, Tracked
from ptq4snn.network.index import Index, Window, compact, window_taps
from ptq4snn.network.program import Gather, Pool

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["Table", "reduce", "whole_axis", "window_axis"]

SOME_STEPS = "joins some of the time steps or samples with each other"


def whole_axis(n: int) -> Table:
    return Table(n, torch.arange(n).reshape(1, n))


def window_axis(n: int, kernel: int, stride: int, padding: int, dilation: int, out: int) -> Table:
    at = torch.arange(out).reshape(-1, 1) * stride - padding + torch.arange(kernel) * dilation
    return Table(n, at)


def reduce(w: Lowering, x: Tracked, tables: Tables, how: str) -> Tracked:
    """The sum or maximum over all taps; axes keep their place. Time goes first, then channels."""
    x = w.builder.positive(x)
    if how == "max":
        x = w.builder.whole(x)  # zeros put around a tensor take part, those of the pool itself do not
    over = {d: t for d, t in tables.items() if not t.idle}
    timed = [d for d in over if w.builder.split(x).varies(d)]
    if timed:
        x = _over_time(w, x, timed, over, how)
        over = {d: t for d, t in over.items() if d not in timed}
    s = w.builder.split(x)
    channels = in_own_order(s, w.builder.of(x.value).channels)[1] if s.separate else ()
    inside = {d: t for d, t in over.items() if d in channels}
    for part in (inside, {d: t for d, t in over.items() if d not in inside}):
        x = _step(w, x, part, how) if part else x
    return x


def _step(w: Lowering, x: Tracked, over: Tables, how: str) -> Tracked:
    s = w.builder.split(x)
    found = regular_pool(w.builder.of(x.value), s, over, how)
    if found is not None:
        return _pooled(w, x, s, found, how)
    taps = _taps(s.element, over)
    if how == "max":
        taps = _stored_only(taps)
    weights = _weights(s.element.dim(), over).expand_as(taps)
    sizes, flat = list(taps.shape[:-1]), taps.reshape(-1, taps.shape[-1])
    window = _window(s, over, w.builder.of(x.value).channels)
    value, element = _join(w, x, flat, weights.reshape(flat.shape), how, window)
    shape = [over[d].at.shape[0] if d in over else n for d, n in enumerate(s.shape)]
    numbers = number(s.sample, element.reshape(sizes), w.builder.elements(value)).expand(shape)
    return replace(x, value=value, numbers=numbers, binary=x.binary and how == "max")


def _pooled(w: Lowering, x: Tracked, s: Split, found: RegularPool, how: str) -> Tracked:
    """A pool whose taps need not be looked at one by one."""
    shape = found.positions, w.builder.of(x.value).channels
    value = w.builder.add(
        Pool, (x.value,), shape, how=how, window=found.window, taps=None, weights=None, axes=found.axes
    )
    numbers = number(s.sample, found.element, w.builder.elements(value))
    sizes = [max(a, b) for a, b in zip(found.element.shape, s.sample.shape, strict=True)]
    return replace(x, value=value, numbers=numbers.expand(sizes), binary=x.binary and how == "max")


def _window(s: Split, over: Tables, channels: int) -> Window | None:
    """The window that regular tables are, over all axes of positions; whether it is right is seen from its
    taps."""
    positions = in_own_order(s, channels)[0] if s.separate else ()
    axes = sorted({*over, *(d for d in positions if s.element.shape[d] > 1)})
    parts = [window_part(over[d] if d in over else each_axis(s.shape[d])) for d in axes]
    known = [p for p in parts if p is not None]
    return Window(*zip(*known, strict=True)) if len(known) == len(parts) else None


def _over_time(w: Lowering, x: Tracked, axes: list[int], tables: Tables, how: str) -> Tracked:
    """Sum over axes that run over time: every step once, in any order."""
    b = w.builder
    if how != "sum" or any(tables[d].at.shape[0] != 1 for d in axes):
        raise Refused(SOME_STEPS)
    moved = x.numbers.movedim(axes, tuple(range(-len(axes), 0)))
    flat = moved.reshape(*moved.shape[: -len(axes)], -1).sort(-1).values
    size = b.batch * b.elements(x.value)
    if not b.of(x.value).time or flat.shape[-1] % b.steps or blanks(flat):
        raise Refused(SOME_STEPS)
    steps = flat.reshape(*flat.shape[:-1], b.steps, -1)
    at = torch.arange(b.steps, dtype=flat.dtype).reshape(-1, 1) * size
    first = steps[..., :1, :]
    if not same_numbers(steps, first + at):
        raise Refused(SOME_STEPS)
    if steps.shape[-1] != 1:
        raise Refused("sums over time and other axes at once; sum over time first")
    numbers = first.reshape([1 if d in axes else n for d, n in enumerate(x.numbers.shape)])
    return replace(x, value=b.time_sum(x.value), numbers=numbers, binary=False)


def _taps(element: Tensor, tables: Tables) -> Tensor:
    """Storage elements [*out, taps] that each output element is made of."""
    out = element
    for d, table in sorted(tables.items()):  # each axis becomes [out], its taps go to the end
        at = table.taps
        if out.shape[d] == 1 and at.max() > 0:
            out = out.expand(*[n if i != d else int(at.max()) + 1 for i, n in enumerate(out.shape)])
        picked = out.index_select(d, at.clamp(min=0).reshape(-1)).unflatten(d, at.shape)
        blank = (at < 0).reshape([*at.shape, *[1] * (out.dim() - d - 1)])
        out = torch.where(blank, ZERO, picked).movedim(d + 1, -1)
    return out.flatten(element.dim())


def _weights(rank: int, tables: Tables) -> Tensor:
    """What every tap counts, [*1 or out, taps]."""
    out = torch.ones([1] * rank, dtype=torch.int64)
    for d, table in sorted(tables.items()):
        weight = torch.ones_like(table.at) if table.weights is None else table.weights
        shape = [table.at.shape[0] if i == d else 1 for i in range(rank)] + [1] * (out.dim() - rank)
        out = out.unsqueeze(-1) * weight.reshape(*shape, weight.shape[1])
    return out.flatten(rank)


def _stored_only(taps: Tensor) -> Tensor:
    """Padding takes no part in a maximum: another tap in its place."""
    most = taps.amax(-1, keepdim=True)
    return torch.where(taps < 0, most, taps)


def _join(
    w: Lowering, x: Tracked, taps: Tensor, weights: Tensor, how: str, window: Window | None
) -> tuple[int, Tensor]:
    """The value that holds the result, and the storage element [n] of every output element."""
    v = w.builder.of(x.value)
    channel = torch.where(taps < 0, -1, taps % v.channels)
    own = channel.amax(1)
    if bool(((channel < 0) | (channel == own.reshape(-1, 1))).all()) and bool((own >= 0).all()):
        place = torch.where(taps < 0, -1, taps // v.channels)
        rows, which = unique_rows(torch.cat([place, weights], 1))
        value = _pool(w, x.value, rows[:, : taps.shape[1]], rows[:, taps.shape[1] :], how, window)
        return value, which * v.channels + own
    if not bool((weights == 1).all()):
        raise Refused("weighs different channels")
    place = torch.where(taps < 0, -1, taps // v.channels)
    at = place.amax(1)
    if bool(((place < 0) | (place == at.reshape(-1, 1))).all()):  # within each position
        rows, which = unique_rows(channel)
        value = _within(w, x.value, rows, how)
        return value, at * len(rows) + which
    rows, which = unique_rows(taps)
    return _gather(w, x.value, compact(rows.reshape(-1).numpy()), rows.shape[1], (1, len(rows)), how), which


def _within(w: Lowering, value: int, rows: Tensor, how: str) -> int:
    """Joins channels of every position alike."""
    v = w.builder.of(value)
    base = torch.arange(v.positions).reshape(-1, 1) * v.channels
    flat = rows.reshape(-1)
    index = compact(torch.where(flat < 0, -1, base + flat).numpy())
    if index.numbers is not None and not bool((flat < 0).any()):
        index = Index((v.positions,), (v.channels,), 0, tuple(flat.tolist()))
    return _gather(w, value, index, rows.shape[1], (v.positions, len(rows)), how)


def _gather(w: Lowering, value: int, index: Index, width: int, shape: tuple[int, int], how: str) -> int:
    return w.builder.add(Gather, (value,), shape, how=how, width=width, index=index)


def _pool(w: Lowering, value: int, taps: Tensor, weights: Tensor, how: str, window: Window | None) -> int:
    """A pool over positions: a regular window if it is one."""
    v = w.builder.of(value)
    shape = (len(taps), v.channels)
    if taps.shape == (1, v.positions) and torch.equal(taps[0], torch.arange(v.positions)):
        window = Window((v.positions,), (v.positions,), (1,), (0,), (0,), (1,))
    plain = bool((weights == 1).all())
    if window is not None and plain and prod(window.size) == v.positions:
        regular = torch.from_numpy(window_taps(window))
        regular = _stored_only(regular) if how == "max" else regular
        if regular.shape == taps.shape and torch.equal(regular, taps):
            return w.builder.add(Pool, (value,), shape, how=how, window=window, taps=None, weights=None)
    counts = None if plain else tuple(weights.reshape(-1).tolist())
    flat = tuple(taps.reshape(-1).tolist())
    return w.builder.add(Pool, (value,), shape, how=how, window=None, taps=flat, weights=counts)

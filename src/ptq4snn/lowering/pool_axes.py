"""Pools over axes of positions that are stored in their order: found axis by axis, no tap is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ptq4snn.lowering.numbering import Split, in_own_order
from ptq4snn.network.index import Window
from ptq4snn.network.program import PoolAxis, Value

__all__ = ["RegularPool", "Table", "Tables", "each_axis", "regular_pool", "window_part"]


@dataclass(frozen=True)
class Table:
    """Elements [out, taps] of one axis of length n, those outside of it being padding, and what each counts
    (None: once)."""

    n: int
    at: Tensor
    weights: Tensor | None = None

    @property
    def taps(self) -> Tensor:
        """-1 for padding."""
        return torch.where((self.at >= 0) & (self.at < self.n), self.at, -1)

    @property
    def idle(self) -> bool:
        """Every element is made of itself."""
        return self.at.shape == (self.n, 1)


Tables = Mapping[int, Table]  # by axis
Part = tuple[int, int, int, int, int, int]  # of a window, along one axis


@dataclass(frozen=True)
class RegularPool:
    """A window, or the axes of a weighted sum; `element` has the tensor's axes, those of samples of size 1,
    and holds the storage element of every output."""

    window: Window | None
    axes: tuple[PoolAxis, ...] | None
    positions: int
    element: Tensor


def regular_pool(value: Value, s: Split, over: Tables, how: str) -> RegularPool | None:
    """The pool of tables over axes of positions; None where the value is not stored in the tensor's order, or
    the tables need taps of their own."""
    if not s.separate:
        return None
    positions, channels = in_own_order(s, value.channels)
    sizes = prod(s.shape[d] for d in positions), prod(s.shape[d] for d in channels)
    if not set(over) <= set(positions) or sizes != (value.positions, value.channels):
        return None
    if not torch.equal(_in_order(s.shape, positions, channels), s.element.expand(_sizes(s))):
        return None
    used = [d for d in positions if d in over or s.shape[d] > 1]
    tables = [over[d] if d in over else each_axis(s.shape[d]) for d in used]
    shape = [over[d].at.shape[0] if d in over else n for d, n in enumerate(s.shape)]
    outputs, element = prod(shape[d] for d in positions), _in_order(shape, positions, channels)
    plain = all(t.weights is None for t in tables)
    window = _window(tables, value.positions) if plain else None
    if window is not None:
        return RegularPool(window, None, outputs, element)
    if how != "sum" or plain or any(bool((t.taps < 0).any()) for t in tables):
        return None
    return RegularPool(None, tuple(map(_axis, tables)), outputs, element)


def each_axis(n: int) -> Table:
    """Every element by itself."""
    return Table(n, torch.arange(n).reshape(-1, 1))


def _sizes(s: Split) -> list[int]:
    return [1 if s.varies(d) else n for d, n in enumerate(s.shape)]


def _in_order(shape: Sequence[int], positions: tuple[int, ...], channels: tuple[int, ...]) -> Tensor:
    """Storage elements, positions row-major over their axes, then channels; other axes have size 1."""
    order = (*positions, *channels)
    numbers = torch.arange(prod(shape[d] for d in order)).reshape([shape[d] for d in order])
    others = [d for d in range(len(shape)) if d not in order]
    numbers = numbers.reshape([*numbers.shape, *[1] * len(others)])
    return numbers.permute([(*order, *others).index(d) for d in range(len(shape))])


def _window(tables: list[Table], positions: int) -> Window | None:
    """The window over all axes, where every output has a tap inside; None where there is none."""
    if all(torch.equal(t.at, torch.arange(t.n).reshape(1, -1)) for t in tables):  # all positions as one
        return Window((positions,), (positions,), (1,), (0,), (0,), (1,))
    parts = [p for p in map(window_part, tables) if p is not None]
    fits = len(parts) == len(tables) and all(bool((t.taps >= 0).any(1).all()) for t in tables)
    return Window(*zip(*parts, strict=True)) if fits else None


def window_part(t: Table) -> Part | None:
    """size, kernel, stride, before, after, dilation of an axis whose taps are those of a window."""
    out, kernel = t.at.shape
    stride = int(t.at[1, 0] - t.at[0, 0]) if out > 1 else 1
    dilation = int(t.at[0, 1] - t.at[0, 0]) if kernel > 1 else 1
    before = -int(t.at[0, 0])
    wanted = torch.arange(out).reshape(-1, 1) * stride - before + torch.arange(kernel) * dilation
    if stride < 1 or dilation < 1 or before < 0 or not torch.equal(wanted, t.at):
        return None
    behind = (out - 1) * stride + dilation * (kernel - 1) + 1 - t.n - before
    return t.n, kernel, stride, before, max(0, behind), dilation


def _axis(t: Table) -> PoolAxis:
    weights = torch.ones_like(t.at) if t.weights is None else t.weights
    return PoolAxis(t.n, t.at.shape[1], tuple(t.at.flatten().tolist()), tuple(weights.flatten().tolist()))

"""What the first projection sees: a grid of at most 256 equally spaced values (pixels, counts) or a range."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.network.plan import InputPlan
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS

__all__ = ["InputStatistics"]

LEVELS = 256
FIRST = 4096  # values of a channel that are looked at before the others
TOLERANCE = 2e-3  # of a grid step: float32 normalisation of pixels stays well inside


def spacing(values: Tensor) -> float | None:
    """The largest step at which all sorted values lie on one grid of at most 256 points, 0 for one value."""
    far = values[1:][values.diff() > 1e-6 * values.abs().max()]
    distance = torch.cat([values[:1], far]) - values[0]
    if len(distance) == 1:
        return 0.0
    least, span = float(distance.diff().min()), float(distance[-1])
    for parts in range(1, LEVELS):  # the least distance need not be one step
        if span * parts / least > LEVELS - 0.5:
            break
        position = (distance * parts / least).round()
        step = span / float(position[-1])  # the whole range is finer than the least distance
        if bool(((distance / step - position).abs() < TOLERANCE).all()):
            return step
    return None


def _others(known: Tensor, row: Tensor) -> Tensor:
    """Values of `row` that are not among the sorted `known`."""
    if not len(known) or not len(row):
        return row
    same = known.to(row.dtype)  # what was seen in a narrower type is exact in it
    at = torch.searchsorted(same, row, out_int32=True).clamp_max_(len(known) - 1)
    return row[same[at] != row]


@dataclass
class InputStatistics:
    """Per input channel; a Linear has one entry for all of its inputs."""

    axis: int | None  # None: one entry
    low: Tensor
    high: Tensor
    values: list[Tensor] | None  # the values seen of every channel, sorted; None once a channel has too many

    @classmethod
    def for_module(cls, module: nn.Module) -> InputStatistics:
        channels, axis = 1, None
        if not isinstance(module, nn.Linear):
            weight: Tensor = module.weight  # type: ignore[assignment]
            channels = int(weight.shape[1]) * int(getattr(module, "groups", 1))
            axis = channel_axis(module)
        empty = torch.zeros(channels, 0, dtype=torch.float64)
        infinite = torch.full((channels,), torch.inf, dtype=torch.float64)
        return cls(axis, infinite, -infinite, list(empty))

    def rows(self, x: Tensor) -> Tensor:
        """x as [C, values]."""
        x = x.detach().cpu()
        return x.reshape(1, -1) if self.axis is None else x.movedim(self.axis, 0).flatten(1).contiguous()

    def update(self, x: Tensor) -> None:
        rows = self.rows(x)
        self.low = torch.minimum(self.low, rows.amin(1).double())
        self.high = torch.maximum(self.high, rows.amax(1).double())
        self._add(list(rows))

    def _add(self, rows: list[Tensor] | None) -> None:
        if self.values is None or rows is None:
            self.values = None
            return
        joined = []
        for known, row in zip(self.values, rows, strict=True):
            for part in (row[:FIRST], row[FIRST:]):  # a few tell most values, or that there are too many
                known = torch.cat([known, _others(known, part).double()]).unique()
                if len(known) > LEVELS:
                    self.values = None
                    return
            joined.append(known)
        self.values = joined

    def merge(self, other: InputStatistics) -> InputStatistics:
        """Both parts together; the order does not matter."""
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        joined = InputStatistics(self.axis, low, high, self.values)
        joined._add(other.values)
        return joined

    def steps(self) -> Tensor | None:
        """Grid spacing [C], 0 for a constant channel; None where a channel is on no grid."""
        found = [spacing(v) for v in self.values] if self.values is not None else [None]
        exact = [s for s in found if s is not None]
        return torch.tensor(exact, dtype=torch.float64) if len(exact) == len(found) else None

    def plan(self, gains: tuple[float, ...] = (), offsets: tuple[float, ...] = ()) -> InputPlan:
        """8-bit grid p = x / scale + zero per channel; with `gains` and `offsets`, x = gain r + offset, also
        that of r: r / (scale / gain) + zero + offset / scale."""
        step = self.steps()
        if step is not None:
            span = torch.where(self.high > self.low, self.high - self.low, torch.ones_like(self.high))
            scale = torch.where(step > 0, step, span)
            first = (self.low / scale).round()
            slack = (LEVELS - 1) - ((self.high - self.low) / scale).round()
            # values not seen yet: down to zero where the grid holds zero, else on both sides
            fits_zero = (self.low >= 0) & ((self.high / scale).round() <= LEVELS - 1)
            below = torch.where(fits_zero, first.clamp_min(0), (slack / 2).floor())
            zero = below - self.low / scale
        else:
            low, high = self.low.clamp_max(0), self.high.clamp_min(0)
            scale = ((high - low) / (LEVELS - 1)).clamp_min(1e-12)
            zero = (-low / scale).round()
        found = InputPlan(tuple(scale.tolist()), _fixed(zero), step is not None)
        if not gains:
            return found
        gain, offset = (torch.tensor(v, dtype=torch.float64) for v in (gains, offsets))
        fixed = torch.tensor(found.zeros, dtype=torch.float64) / 2**ZERO_FRACTION_BITS
        raw = (scale / gain).tolist(), _fixed(fixed + offset / scale)
        return replace(found, raw_scales=tuple(raw[0]), raw_zeros=raw[1])


def _fixed(zero: Tensor) -> tuple[int, ...]:
    """With 16 bits behind the point."""
    return tuple((zero * 2**ZERO_FRACTION_BITS).round().long().tolist())

"""What the first projection sees: a grid of at most 256 equally spaced values (pixels, counts) or a range."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ptq4snn.discovery.walk import channel_axis
from ptq4snn.plan import InputPlan

__all__ = ["InputStatistics"]

LEVELS = 256
ZERO_BITS = 16
TOLERANCE = 2e-3  # of a grid step: float32 normalisation of pixels stays well inside


@dataclass
class InputStatistics:
    """Per input channel; a Linear has one entry for all of its inputs."""

    axis: int | None  # None: one entry
    low: Tensor
    high: Tensor
    step: Tensor | None = None  # [C] grid spacing, 0 for a constant channel; None before the first batch
    origin: Tensor | None = None  # [C] a point of the grid
    on_grid: bool = True

    @classmethod
    def for_module(cls, module: nn.Module) -> InputStatistics:
        if isinstance(module, nn.Linear):
            return cls(None, torch.full((1,), torch.inf), torch.full((1,), -torch.inf))
        groups = int(getattr(module, "groups", 1))
        weight: Tensor = module.weight  # type: ignore[assignment]
        channels = int(weight.shape[1]) * groups
        return cls(channel_axis(module), torch.full((channels,), torch.inf), torch.full((channels,), -torch.inf))

    def rows(self, x: Tensor) -> Tensor:
        """x as [C, values]."""
        x = x.detach().double().cpu()
        return x.reshape(1, -1) if self.axis is None else x.movedim(self.axis, 0).flatten(1)

    def update(self, x: Tensor) -> None:
        rows = self.rows(x)
        self.low = torch.minimum(self.low, rows.amin(1))
        self.high = torch.maximum(self.high, rows.amax(1))
        if self.step is None:
            self._find_grid(rows)
        elif self.on_grid:
            self.on_grid = self._fits(rows)

    def _find_grid(self, rows: Tensor) -> None:
        steps, origins = [], []
        for row in rows:
            values = row.unique()
            gaps = values.diff()
            gaps = gaps[gaps > 1e-6 * values.abs().max().clamp_min(1e-12)]
            if len(values) > LEVELS or len(gaps) == 0:
                self.on_grid = self.on_grid and len(values) == 1
                steps.append(0.0)
            else:  # the mean of many gaps is finer than the least of them
                least = float(gaps.min())
                steps.append(float(gaps.sum() / (gaps / least).round().sum()))
            origins.append(float(values[0]))
        self.step, self.origin = torch.tensor(steps, dtype=torch.float64), torch.tensor(origins, dtype=torch.float64)
        self.on_grid = self.on_grid and self._fits(rows)

    def _fits(self, rows: Tensor) -> bool:
        assert self.step is not None and self.origin is not None
        step = torch.where(self.step > 0, self.step, torch.ones_like(self.step))
        position = (rows - self.origin[:, None]) / step[:, None]
        levels = (self.high - self.low) / step
        return bool(((position - position.round()).abs() < TOLERANCE).all() and (levels < LEVELS - 0.5).all())

    def merge(self, other: InputStatistics) -> InputStatistics:
        """Both parts together; parts on different grids are on none."""
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        assert self.step is not None and other.step is not None
        same = torch.allclose(self.step, other.step, rtol=1e-6, atol=0)
        joined = InputStatistics(self.axis, low, high, self.step, self.origin, self.on_grid and other.on_grid and same)
        if joined.on_grid and other.origin is not None:
            joined.on_grid = joined._fits(torch.stack([other.origin, other.low, other.high], 1))
        return joined

    def plan(self) -> InputPlan:
        """8-bit grid p = x / scale + zero per channel."""
        assert self.step is not None
        if self.on_grid:
            span = torch.where(self.high > self.low, self.high - self.low, torch.ones_like(self.high))
            scale = torch.where(self.step > 0, self.step, span)
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
        zeros = (zero * 2**ZERO_BITS).round().long().tolist()
        return InputPlan(tuple(scale.tolist()), tuple(zeros), self.on_grid)

"""Soft rounding (AdaRound): W~ = s clip(floor(W/s) + h(V)), with h a sigmoid stretched beyond [0, 1]; on odd
levels (numerics/grid.py) of their numbers.

The regularizer sum 1 - |2h - 1|^b drives h to 0 or 1; b falls, after a warm-up without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.numerics.grid import numbered, on_levels, signed_range
from ptq4snn.numerics.nearest import QuantWeight

__all__ = ["SoftWeight", "exponent"]

ZETA, GAMMA = 1.1, -0.1
WARM_UP = 0.2  # share of the iterations
FIRST_B, LAST_B = 20.0, 2.0


class SoftWeight:
    """A weight between the grid points on both sides of it; it starts as the weight itself."""

    def __init__(self, weight: Tensor, q: QuantWeight) -> None:
        assert q.bits is not None
        self.low, self.high = signed_range(q.bits)
        self.odd = q.odd
        shape = (-1, *[1] * (weight.dim() - 1))
        scale = q.scales.to(weight.device).double().view(shape)
        position = numbered(weight.double() / scale, q.odd)
        below = position.floor()
        share = (position - below).clamp(1e-4, 1 - 1e-4)
        self.scale, self.below = scale.to(weight.dtype), below.to(weight.dtype)
        logit = -torch.log((ZETA - GAMMA) / (share - GAMMA) - 1)
        self.v = logit.to(weight.dtype).requires_grad_()

    def h(self) -> Tensor:
        return (torch.sigmoid(self.v) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)

    def value(self, h: Tensor) -> Tensor:
        """W~ for the shares h."""
        return on_levels((self.below + h).clamp(self.low, self.high), self.odd) * self.scale

    def integers(self) -> Tensor:
        """Every weight on one of its two grid points."""
        up = (self.v.detach() >= 0).to(self.below.dtype)
        return on_levels((self.below + up).clamp(self.low, self.high), self.odd).double()

    @staticmethod
    def penalty(h: Tensor, b: float) -> Tensor:
        return (1 - (2 * h - 1).abs().pow(b)).sum()


def exponent(iteration: int, iterations: int) -> float | None:
    """b of the regularizer, None during the warm-up; linear afterwards."""
    start = WARM_UP * iterations
    if iteration < start:
        return None
    done = (iteration - start) / max(1.0, iterations - start)
    return LAST_B + (FIRST_B - LAST_B) * (1 - done)

"""The signed integer grid of b bits: q in [-2^(b-1), 2^(b-1) - 1], value = scale * q."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["interval_error", "quantize", "signed_range"]


def signed_range(bits: int) -> tuple[int, int]:
    """Smallest and largest integer of `bits` bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def quantize(x: Tensor, scale: Tensor | float, bits: int) -> Tensor:
    """Nearest grid points as integers in x's type; halves go to even, the rest is clipped."""
    lo, hi = signed_range(bits)
    return (x / scale).round().clamp(lo, hi)


def interval_error(a: Tensor, b: Tensor, step: Tensor, bits: int, zero: int = 0) -> Tensor:
    """Mean squared error of the grid for values spread evenly over [a, b], 0 on one side of both; exact.

    The levels run from lo + zero to hi + zero, which must hold 0.

    With y = |x| / step and n the nearest level, the integral of the squared error from 0 to y is
    n/12 + (y - n)^3 / 3, also beyond the last level.
    """
    lo, hi = (level + zero for level in signed_range(bits))
    negative = (a + b) < 0
    top = torch.where(negative, -float(lo), float(hi)).to(a)
    near, far = torch.minimum(a.abs(), b.abs()) / step, torch.maximum(a.abs(), b.abs()) / step

    def integral(y: Tensor) -> Tensor:
        n = y.round()
        n = torch.minimum(n, top, out=n)
        rest = y - n
        return n.div_(12).add_(rest.pow_(3).div_(3))

    return integral(far).sub_(integral(near)).mul_(step**2).div_(far - near)

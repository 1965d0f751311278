"""The signed integer grid of b bits: q in [-2^(b-1), 2^(b-1) - 1], value = scale * q.

Weights of few bits may have odd levels instead, value = scale * (2 q + 1): as many on either side of 0, which
is none of them. {-3, -1, 1, 3} leaves a quarter less of a normal distribution's error than {-2, -1, 0, 1}.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["interval_error", "largest", "numbered", "on_levels", "quantize", "signed_range"]


def signed_range(bits: int) -> tuple[int, int]:
    """Smallest and largest integer of `bits` bits."""
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def largest(bits: int, odd: bool = False) -> int:
    """The last level."""
    return 2**bits - 1 if odd else signed_range(bits)[1]


def quantize(x: Tensor, scale: Tensor | float, bits: int, odd: bool = False) -> Tensor:
    """Nearest levels as integers in x's type; halves go to even q, the rest is clipped."""
    return on_levels(numbered(x / scale, odd).round().clamp(*signed_range(bits)), odd)


def numbered(x: Tensor, odd: bool) -> Tensor:
    """q of x, which counts scales; what lies between two levels lies between two numbers."""
    return (x - 1) / 2 if odd else x


def on_levels(q: Tensor, odd: bool) -> Tensor:
    """The inverse of `numbered`."""
    return 2 * q + 1 if odd else q


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

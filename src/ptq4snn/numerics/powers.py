"""Powers of two, the same bits on every CPU: torch.exp2 of fractions rounds as the CPU's vectors do."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["next_power", "parts_of_octave"]

BIAS, MANTISSA = 1023, 52  # of a float64


def next_power(x: Tensor) -> Tensor:
    """The least power of two above x >= 0, float64; 1 where x is 0."""
    exponent = torch.frexp(x.double()).exponent.long().masked_fill(x == 0, 0)  # x < 2^exponent
    return ((exponent + BIAS) << MANTISSA).view(torch.float64)


def parts_of_octave(parts: int, count: int, down: bool = False) -> Tensor:
    """2^(i / parts), or 2^(-i / parts), for i < count, to 40 bits: what a library of functions adds behind
    them is its own."""
    sign = -1 if down else 1
    scaled = [round(2.0 ** (sign * (i % parts) / parts) * 2**40) for i in range(count)]
    values = [s / 2**40 * 2.0 ** (sign * (i // parts)) for i, s in enumerate(scaled)]
    return torch.tensor(values, dtype=torch.float64)

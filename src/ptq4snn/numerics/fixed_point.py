"""Shifts, multipliers and leaks as integers. The functions on int64 are the reference; carriers in floats
must give the same integers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ptq4snn.numerics.limits import MULTIPLIER_BITS

__all__ = ["Fraction2", "dyadic_leak", "leak_on_grid", "multiplier", "rshift_even"]

LEAK_BITS = 15


class Fraction2(NamedTuple):
    """m / 2^n."""

    m: int
    n: int

    @property
    def value(self) -> float:
        return math.ldexp(self.m, -self.n)


def rshift_even(a: Tensor, n: Tensor | int) -> Tensor:
    """a / 2^n for int64 `a`, halves to even; n = 0 is the identity."""
    n = torch.as_tensor(n, dtype=torch.int64)
    one = torch.ones_like(n)
    floor = a >> n
    rest = a - (floor << n)
    half = torch.where(n > 0, one << (n - 1).clamp_min(0), one)
    up = (rest > half) | ((rest == half) & (floor % 2 != 0))
    return torch.where(n > 0, floor + up.to(a.dtype), a)


@lru_cache(maxsize=4096)  # the channels of a neuron share them
def dyadic_leak(leak: float) -> Fraction2:
    """leak as m / 2^n: exact with n <= 8 where it can be, else with n = 15."""
    for n in range(9):
        if leak * 2**n == round(leak * 2**n):
            return Fraction2(round(leak * 2**n), n)
    return Fraction2(round(leak * 2**LEAK_BITS), LEAK_BITS)


def leak_on_grid(leak: float, grid: str) -> float:
    """The leak nearest to `leak`: 1 - 2^-n ("power"), m / 2^12 ("12-bit"), or itself ("exact").

    A leak of 1, which is none, stays: what never forgot is not made to forget.
    """
    if grid == "exact" or leak == 1.0:
        return leak
    if grid == "12-bit":
        return round(leak * 2**12) / 2**12
    return min((1 - 2.0**-n for n in range(LEAK_BITS + 1)), key=lambda x: abs(x - leak))


def multiplier(x: float) -> Fraction2:
    """The positive number x as a 15-bit multiplier and a shift: 2^14 <= m < 2^15, or exact powers of two."""
    if x <= 0 or not math.isfinite(x):
        raise ValueError(f"a multiplier must be positive and finite, got {x}")
    mantissa, exponent = math.frexp(x)  # x = mantissa * 2^exponent, 0.5 <= mantissa < 1
    if mantissa == 0.5 and exponent <= 1:
        return Fraction2(1, 1 - exponent)
    m, n = round(mantissa * 2**MULTIPLIER_BITS), MULTIPLIER_BITS - exponent
    if m == 2**MULTIPLIER_BITS:
        m, n = m // 2, n - 1
    while n < 0:
        m, n = m * 2, n + 1
    return Fraction2(m, n)

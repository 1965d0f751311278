"""Factors between the units of an input and the steps of a state."""

from __future__ import annotations

import math
from functools import lru_cache

from ptq4snn.numerics.fixed_point import Fraction2, multiplier

__all__ = ["conversions", "power_of_two"]


def power_of_two(x: float) -> int | None:
    mantissa, exponent = math.frexp(x)
    return exponent - 1 if mantissa == 0.5 else None


@lru_cache(maxsize=4096)  # channels and trials share them
def conversions(ratio: float, leak: Fraction2) -> tuple[Fraction2, Fraction2]:
    """Charge and settle factors of a state whose step is `ratio` units: shifts where it is a power of two."""
    shift = power_of_two(ratio)
    if shift is not None and shift >= 0:
        whole = min(shift, leak.n)
        return Fraction2(leak.m << (shift - whole), leak.n - whole), Fraction2(1, shift)
    return multiplier(max(ratio * leak.value, 2.0**-30)), multiplier(1 / ratio)

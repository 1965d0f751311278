"""Numbers of the arithmetic that several packages keep to: one name, one value."""

from __future__ import annotations

from typing import Final

__all__ = [
    "EXACT_FLOAT32",
    "EXACT_FLOAT64",
    "INT32",
    "INT64_SHIFT",
    "MULTIPLIER_BITS",
    "WIDE_STATE",
    "ZERO_FRACTION_BITS",
]

INT32: Final = 2**31  # -INT32 <= x < INT32
EXACT_FLOAT32: Final = 2**24  # below it float32 holds every whole number
EXACT_FLOAT64: Final = 2**53  # and float64
INT64_SHIFT: Final = 62  # the largest right shift whose half, 2^(n - 1), and double fit int64
MULTIPLIER_BITS: Final = 15  # of a fixed-point factor m / 2^n
ZERO_FRACTION_BITS: Final = 16  # of an input's zero, which lies between two levels: zero / 2^16
WIDE_STATE: Final = 32  # bits of a state that is not quantized

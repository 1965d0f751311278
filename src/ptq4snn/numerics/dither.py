"""The offsets of a dithered shift, alike on integers of Python, NumPy and torch; nothing is drawn at random.

    phase(p, t)  = (40503 p + (bitrev4(t mod 16) << 12) + 2048) mod 2^16
    rshift(a, n) = (a + (phase >> (16 - n))) >> n                           n <= 16

p is the index in one sample's state, t the step. 40503 is about 2^16 / golden ratio, so that neighbours get
offsets far apart; in sixteen steps the reversed bits of t visit sixteen offsets, a sixteenth apart.
csrc/dither.h is the same for the kernels, with the numbers of this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

if TYPE_CHECKING:  # a bundle runs without torch
    from torch import Tensor

__all__ = [
    "CYCLE_BITS", "HALF", "PHASES", "PHASE_BITS", "STRIDE", "bit_reverse4", "dither_offset", "dither_phase",
    "first_phase", "later_phase", "rshift_dither",
]  # fmt: skip

PHASE_BITS: Final = 16  # also the largest shift that can be dithered
PHASES: Final = 2**PHASE_BITS
STRIDE: Final = 40503  # from one element to the next
CYCLE_BITS: Final = 4  # after 2^4 steps the offsets come again
HALF: Final[int] = PHASES >> (CYCLE_BITS + 1)  # half a sixteenth: the mean is a half

Integer = TypeVar("Integer", int, "np.ndarray[Any, np.dtype[np.int64]]", "Tensor")  # all of 64 bits


def bit_reverse4(t: int) -> int:
    """Reversal of the four low bits of t."""
    return ((t & 1) << 3) | ((t & 2) << 1) | ((t & 4) >> 1) | ((t & 8) >> 3)


def first_phase(p: Integer) -> Integer:
    """phase(p, 0)."""
    return (STRIDE * p + HALF) % PHASES


def later_phase(first: Integer, t: int) -> Integer:
    """phase(p, t) of first_phase(p)."""
    return (first + (bit_reverse4(t) << (PHASE_BITS - CYCLE_BITS))) % PHASES


def dither_phase(p: Integer, t: int) -> Integer:
    """phase(p, t), from 0 to 2^16 - 1."""
    return later_phase(first_phase(p), t)


def dither_offset(phase: Integer, n: Integer) -> Integer:
    """What is added before a shift by n <= 16: from 0 to 2^n - 1."""
    return phase >> (PHASE_BITS - n)


def rshift_dither(a: Integer, n: Integer, p: Integer, t: int) -> Integer:
    """a / 2^n rounded down or up by the phase of element p at step t; n = 0 is the identity."""
    shifted: Integer = (a + dither_offset(dither_phase(p, t), n)) >> n
    return shifted

"""What is known of a recorded tensor while it is lowered.

Every element of a tensor is an element of a program value: `numbers` has the tensor's shape and holds

    (t * B + b) * E + e        E = positions * channels of the value,  t = 0 for a value without time
    ZERO                       a zero that is stored nowhere (padding)
    UNWRITTEN                  an element of a buffer that was never written

The tensor's carrier is factor / T^per_steps times that integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from torch import Tensor

__all__ = [
    "INPUT", "UNWRITTEN", "ZERO", "Constant", "Fact", "Refused", "Scalings", "Tracked", "common_factor",
    "fraction", "worth",
]  # fmt: skip

INPUT = -1  # number of the model's input, which is no value of the program
ZERO = -1
UNWRITTEN = -2
Scalings = tuple[tuple[str, float] | tuple[str], ...]


class Refused(Exception):
    """The operation has no place in a program; the message says why."""


@dataclass(frozen=True)
class Constant:
    value: float | None = None  # where all elements are equal
    empty: bool = False  # a buffer that is yet to be written
    name: str | None = None  # the membrane of this neuron, which nothing else reads


@dataclass(frozen=True)
class Tracked:
    """kind: data (the input), count (made of spikes), current, potential (of the neuron `name`), real
    (decoded numbers of the projection `name`)."""

    value: int
    numbers: Tensor
    kind: str
    name: str | None = None
    factor: Fraction = Fraction(1)
    per_steps: int = 0
    scalings: Scalings = ()  # how an output's carrier is made of the integer
    binary: bool = False  # 0 or 1
    summed: frozenset[int] | None = None  # a sum of these steps, and not yet of all


Fact = Tracked | Constant


def fraction(x: float) -> Fraction:
    """x, or the simple fraction that was meant by it (1/3, 0.1)."""
    simple = Fraction(x).limit_denominator(2**20)
    return simple if abs(float(simple) - x) <= 1e-12 * abs(x) else Fraction(x)


def common_factor(factors: list[Fraction]) -> Fraction:
    """The largest number that all factors are whole multiples of."""
    down = lcm(*(f.denominator for f in factors))
    return Fraction(gcd(*(int(f * down) for f in factors)), down)


def worth(factor: Fraction, per_steps: int = 0) -> Scalings:
    """How a carrier is made of an integer: by a multiplication where that is exact, else by a division."""
    steps: Scalings = (("steps",),) * per_steps
    if factor.denominator & (factor.denominator - 1) == 0:
        return steps if factor == 1 else (("mul", float(factor)), *steps)
    up: Scalings = () if factor.numerator == 1 else (("mul", float(factor.numerator)),)
    return (*up, ("div", float(factor.denominator)), *steps)

"""Ranges of a program's values, for any number of steps.

A range is [lo, hi] for each channel, times T'^degree: `degree` counts the sums over time behind a value,
T' is the number of steps, at most that of `for_steps`. A range with a degree holds 0, so that constants and
values of a lower degree can be added to it. Sums are bounded in any order of their terms: each term may be
absent.

Bounds are float64. They are sums and products of whole numbers of one sign, so they are exact below 2^53;
what reaches that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import BundleError
from ptq4snn.numerics.limits import EXACT_FLOAT64, INT32
from ptq4snn.runtime.parameters import Integers
from ptq4snn.runtime.state import MAX_STEPS

__all__ = ["Range", "align", "fits", "for_steps", "number", "product_fits"]

MAX_DEGREE = 3

Reals = NDArray[np.float64]

_most: ContextVar[int] = ContextVar("most", default=MAX_STEPS)


@contextmanager
def for_steps(most: int) -> Iterator[None]:
    """Ranges inside hold for 1 .. `most` steps."""
    before = _most.set(most)
    try:
        yield
    finally:
        _most.reset(before)


@dataclass(frozen=True)
class Range:
    lo: Reals  # [C]
    hi: Reals
    degree: int = 0
    wide: bool = False  # may leave int32: behind a sum over time, or the potential of a 32-bit state

    def with_zero(self) -> Range:
        return replace(self, lo=np.minimum(self.lo, 0), hi=np.maximum(self.hi, 0))

    def raised(self, degree: int) -> Range:
        """Written with a higher degree."""
        return self if degree == self.degree else replace(self.with_zero(), degree=degree)

    def whole(self) -> Range:
        """Without a degree: for any number of steps."""
        most = float(_most.get()) ** self.degree
        return replace(self, lo=self.lo * most, hi=self.hi * most, degree=0)

    def hull(self, channels: int) -> Range:
        """The same for every channel."""
        lo, hi = np.full(channels, self.lo.min()), np.full(channels, self.hi.max())
        return replace(self, lo=lo, hi=hi)

    def times(self, factor: Any) -> Range:
        a, b = self.lo * factor, self.hi * factor
        return replace(self, lo=np.minimum(a, b), hi=np.maximum(a, b))

    def plus(self, lo: Any, hi: Any) -> Range:
        """Plus a constant in lo .. hi."""
        if self.degree:
            lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
        return replace(self, lo=self.lo + lo, hi=self.hi + hi)

    def ends(self) -> tuple[int, int]:
        """Least and largest, of all channels and any number of steps."""
        r = self.whole()
        return int(r.lo.min()), int(r.hi.max())

    def peak(self) -> float:
        most = float(_most.get()) ** self.degree
        return float(max(np.abs(self.lo).max(), np.abs(self.hi).max()) * most)


def number(lo: float, hi: float, channels: int) -> Range:
    return Range(np.full(channels, float(lo)), np.full(channels, float(hi)))


def fits(r: Range, name: str, what: str) -> Range:
    """Refuse a range that leaves int32 or, where that is allowed, the exact whole numbers of float64."""
    if r.degree > MAX_DEGREE:
        raise BundleError(f"'{name}': {what} is a product of too many sums over time; make the bundle again")
    limit = EXACT_FLOAT64 if r.wide else INT32
    if not r.peak() < limit:  # NaN as well
        bits = "53 bits" if r.wide else "32 bits"
        raise BundleError(
            f"'{name}': {what} can reach {r.peak():.3g}, which does not fit {bits}; make the bundle again "
            f"with fewer weight bits"
        )
    return r


def product_fits(r: Range, multiplier: Integers, name: str, what: str) -> None:
    """Refuse a fixed-point product that does not fit 2^53, in int64 and in float64."""
    fits(replace(r.times(multiplier.astype(np.float64)), wide=True), name, what)


def align(inputs: Sequence[Range]) -> list[Range]:
    degree = max(r.degree for r in inputs)
    return [r.raised(degree) for r in inputs]

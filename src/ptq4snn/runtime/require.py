"""What the check of a program is made of: one sentence for everything that does not hold.

Everything is compared as Python integers, which do not overflow, and no index is unfolded.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ptq4snn.network.index import Index, Window
from ptq4snn.network.program import Value

__all__ = [
    "MAX_ELEMENTS", "MAX_INPUTS", "MAX_NUMBER", "MAX_RANK", "MAX_TAPS", "Refused", "check_index",
    "check_window", "elements", "need", "whole", "wholes",
]  # fmt: skip

MAX_ELEMENTS = 2**26  # of one sample of a value, at one step
MAX_TAPS = 2**26  # positions times taps of a window, entries of a table
MAX_PADDING = 2**16
MAX_RANK = 8
MAX_INPUTS = 1024
MAX_NUMBER = 2**31  # of constants and coefficients


class Refused(Exception):
    """What does not hold, of the operation at hand."""


def need(holds: bool, problem: str) -> None:
    if not holds:
        raise Refused(problem)


def whole(x: Any, low: int, high: int, what: str) -> int:
    """A whole number in low .. high."""
    if not isinstance(x, int) or isinstance(x, bool) or not low <= x <= high:
        raise Refused(f"{what} is no whole number in {low} .. {high}")
    return x


def wholes(x: Any, low: int, high: int, what: str, most: int) -> tuple[int, ...]:
    if not isinstance(x, tuple) or len(x) > most:
        raise Refused(f"{what} is no list of at most {most} numbers")
    return tuple(whole(i, low, high, what) for i in x)


def elements(v: Value) -> int:
    return v.positions * v.channels


def check_index(x: Any, count: int, limit: int, holes: bool, what: str) -> None:
    """`count` numbers in 0 .. limit - 1; with holes also -1."""
    need(isinstance(x, Index), f"{what} is missing")
    wholes(x.sizes, 1, MAX_ELEMENTS, f"a size of {what}", 2 * MAX_RANK)
    wholes(x.strides, -MAX_NUMBER, MAX_NUMBER, f"a stride of {what}", 2 * MAX_RANK)
    whole(x.offset, -MAX_NUMBER, MAX_NUMBER, f"the offset of {what}")
    need(x.count == count, f"{what} has {str(x.count)[:30]} numbers for {count} elements")
    inner = (0,) if x.numbers is None else x.numbers
    low, high = min(inner, default=0), max(inner, default=0)
    need(low >= (-1 if holes and not x.sizes else 0), f"{what} has the negative number {str(low)[:30]}")
    if x.sizes or x.numbers is None:
        need(len(x.sizes) == len(x.strides), f"{what} has other strides than sizes")
        spans = [(n - 1) * s for n, s in zip(x.sizes, x.strides, strict=True)]
        low += x.offset + sum(s for s in spans if s < 0)
        high += x.offset + sum(s for s in spans if s > 0)
        need(low >= 0, f"{what} goes below 0")
    else:
        need(x.offset == 0 and not x.strides, f"{what} has strides without sizes")
    need(high < limit, f"{what} goes to {str(high)[:30]} of {limit} elements")


def check_window(w: Any, inside: int, outside: int, full: bool = False) -> int:
    """The number of taps of a window over `inside` positions that gives `outside`."""
    need(isinstance(w, Window), "the window is missing")
    size = wholes(w.size, 1, MAX_ELEMENTS, "the window's size", MAX_RANK)
    parts = {
        "kernel": wholes(w.kernel, 1, MAX_ELEMENTS, "the kernel", MAX_RANK),
        "stride": wholes(w.stride, 1, MAX_ELEMENTS, "the stride", MAX_RANK),
        "before": wholes(w.before, 0, MAX_PADDING, "the padding", MAX_RANK),
        "after": wholes(w.after, 0, MAX_PADDING, "the padding", MAX_RANK),
        "dilation": wholes(w.dilation, 1, MAX_ELEMENTS, "the dilation", MAX_RANK),
    }
    need(all(len(p) == len(size) for p in parts.values()), "the window's parts differ in length")
    taps = prod(parts["kernel"])
    need(all(n >= 1 for n in w.out_size), "the window is larger than what it moves over")
    need(prod(size) == inside, f"the window moves over {prod(size)} positions of {inside}")
    need(prod(w.out_size) == outside, f"the window gives {prod(w.out_size)} positions, not {outside}")
    need(outside * taps <= MAX_TAPS, f"the window has more than {MAX_TAPS} taps")
    if full:
        need(_touches(w), "a window of a maximum lies wholly in the padding")
    return taps


def _touches(w: Window) -> bool:
    """Whether every window has a tap inside, on every axis."""
    for n, out, k, s, b, d in zip(w.size, w.out_size, w.kernel, w.stride, w.before, w.dilation, strict=True):
        if (out - 1) * s - b >= n:  # the last begins behind the end
            return False
        early = -np.arange(
            -b, min(0, (out - 1) * s - b + 1), s
        )  # distance of those that begin before the start
        first = -(-early // d)  # their first tap that is not before it
        if not ((first < k) & (first * d - early < n)).all():
            return False
    return True

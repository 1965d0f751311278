"""What a model does with its logits at the end of its forward: softmax, log-softmax, argmax.

Simulation and runtime both call this, and exporters write the same steps down: only additions, products,
roundings and one division in float64, each rounded for itself, so that every machine gives the same bits.

    exp(d) = 2^n p(r),  n = rint(d / ln 2),  r = d - n ln 2                p: Taylor's polynomial
    sum    of rint(exp(d) 2^q) 2^-q: whole numbers below 2^53, which may be added in any order
    log(s) = k ln 2 + 2 atanh(f),  s = 2^k m,  f = (m - 1) / (m + 1)       by its series
"""

from __future__ import annotations

from collections.abc import Iterable
from math import factorial, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EXP_TERMS", "FINISHES", "LEAST", "LN2_HIGH", "LN2_LOW", "LOG2_E", "LOG_TERMS", "MAX_CLASSES", "ROOT_2",
    "finished", "sum_bits",
]  # fmt: skip

Array = NDArray[Any]
Wide = NDArray[np.float64]

FINISHES = ("softmax", "log_softmax", "argmax")
MAX_CLASSES = 2**13
LEAST = -708.0  # exp of less is 0 here: float32 has nothing so small
LOG2_E = 1 / log(2.0)
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2; n times the first is exact
EXP_TERMS = tuple(1 / factorial(i) for i in range(13, -1, -1))  # of p, highest power first
LOG_TERMS = tuple(2 / (2 * i + 1) for i in range(10, -1, -1))  # of f * f, highest power first
ROOT_2 = 1.4142135623730951


def finished(x: Array, steps: Iterable[tuple[str, int]]) -> Array:
    """x behind every (what, axis) in turn, in its own type; argmax gives int64."""
    for how, axis in steps:
        if how == "argmax":
            x = np.argmax(x, axis).astype(np.int64)  # of equal ones the first
        else:
            x = _normalised(x.astype(np.float64), axis, how == "log_softmax").astype(x.dtype)
    return x


def sum_bits(classes: int) -> int:
    """q: behind the point of a sum of `classes` numbers up to 1."""
    return 52 - classes.bit_length()


def _normalised(x: Wide, axis: int, logarithm: bool) -> Wide:
    below = x - x.max(axis, keepdims=True)
    e = _exp(below)
    bits = sum_bits(x.shape[axis])
    total = np.rint(e * 2.0**bits).sum(axis, keepdims=True) * 2.0**-bits
    out: Wide = below - _log(total) if logarithm else e / total
    return out


def _polynomial(x: Wide, terms: tuple[float, ...]) -> Wide:
    y = np.full_like(x, terms[0])
    for term in terms[1:]:
        y = y * x
        y = y + term
    return y


def _exp(d: Wide) -> Wide:
    """Of d <= 0."""
    n = np.rint(np.maximum(d, LEAST) * LOG2_E)
    r = np.maximum(d, LEAST) - n * LN2_HIGH
    r = r - n * LN2_LOW
    e: Wide = np.where(d < LEAST, 0.0, np.ldexp(_polynomial(r, EXP_TERMS), n.astype(np.int64)))
    return e


def _log(s: Wide) -> Wide:
    """Of 1 <= s < 2 MAX_CLASSES."""
    m, k = np.frexp(s)  # m in [1/2, 1)
    m, k = m * 2.0, k - 1.0
    half = m > ROOT_2
    m, k = np.where(half, m * 0.5, m), np.where(half, k + 1.0, k)
    f = (m - 1.0) / (m + 1.0)
    series = f * _polynomial(f * f, LOG_TERMS)
    out: Wide = k * LN2_HIGH + (k * LN2_LOW + series)
    return out

"""Mean, spread over seeds, and the paired confidence interval over test samples.

    d_i = mean over seeds of (right_i of the method - right_i of the baseline), one number a test sample
    change = mean d_i,   interval = change +- 1.96 sd(d_i) / sqrt(n)         (normal approximation, in points)

Both methods see the same samples, so what is hard for both does not widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import torch
from torch import Tensor

__all__ = ["Interval", "mean", "paired", "spread"]

Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Interval:
    """A change in points and its 95 % confidence interval."""

    change: float
    low: float
    high: float


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def spread(values: Sequence[float | None]) -> float | None:
    """Sample standard deviation; None of fewer than two."""
    known = [v for v in values if v is not None]
    return stdev(known) if len(known) > 1 else None


def paired(method: Sequence[Tensor], baseline: Sequence[Tensor]) -> Interval:
    """Of bools [n] for each seed, the same samples and seeds in both."""
    d = torch.stack([a.double() - b.double() for a, b in zip(method, baseline, strict=True)]).mean(0)
    change = 100.0 * float(d.mean())
    half = 100.0 * Z * float(d.std()) / math.sqrt(len(d)) if len(d) > 1 else 100.0  # one sample tells nothing
    return Interval(change, change - half, change + half)

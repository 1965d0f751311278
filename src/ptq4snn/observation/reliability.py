"""How far the sensitivities would come out again: those of every other micro-batch against those of the rest.

    r = rank correlation of both halves (Spearman's, ties share their mean rank)        2 r / (1 + r) for both

The second is what Spearman and Brown expect of the mean over both halves, which has twice the samples of
each; it is for r > 0, a negative r stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

__all__ = ["Reliability", "Sensitivity", "rank_correlation"]

FEWEST = 3  # channels that have a rank correlation worth the name


@dataclass(frozen=True)
class Reliability:
    """Of the mean over all micro-batches; None where it cannot be told."""

    batches: int
    overall: float | None  # over the channels of all neurons
    within: float | None  # median over the neurons


@dataclass
class Sensitivity:
    """g_c [C] of every neuron, summed over micro-batches; of the first, third, ... apart from the others."""

    halves: tuple[dict[str, Tensor], dict[str, Tensor]] = field(default_factory=lambda: ({}, {}))
    batches: int = 0

    def add(self, found: Mapping[str, Tensor]) -> None:
        """Another micro-batch."""
        half = self.halves[self.batches % 2]
        for name, g in found.items():
            half[name] = half[name] + g if name in half else g
        self.batches += 1

    def mean(self) -> dict[str, Tensor]:
        """g_c over all micro-batches."""
        first, second = self.halves
        return {n: (g + second[n] if n in second else g) / max(1, self.batches) for n, g in first.items()}

    def reliability(self, names: Iterable[str]) -> Reliability:
        """Over the channels of these neurons."""
        pairs = [(a[n], b[n]) for a, b in [self.halves] for n in names if n in b]
        if not pairs:
            return Reliability(self.batches, None, None)
        whole = _corrected(*(torch.cat(side) for side in zip(*pairs, strict=True)))
        within = [r for pair in pairs if (r := _corrected(*pair)) is not None]
        return Reliability(self.batches, whole, median(within) if within else None)


def _corrected(a: Tensor, b: Tensor) -> float | None:
    r = rank_correlation(a, b)
    return r if r is None or r < 0 else 2 * r / (1 + r)


def rank_correlation(a: Tensor, b: Tensor) -> float | None:
    """Of a [n] and b [n]; None where one is the same everywhere, or too short."""
    if len(a) < FEWEST:
        return None
    x, y = (r - r.mean() for r in (_ranks(a), _ranks(b)))
    size = float(x.square().sum() * y.square().sum()) ** 0.5
    return float((x * y).sum()) / size if size else None


def _ranks(x: Tensor) -> Tensor:
    """From 0 on, equal values share the mean of their ranks."""
    _, place, counts = x.unique(return_inverse=True, return_counts=True)
    ranks: Tensor = (counts.cumsum(0).double() - (counts + 1) / 2)[place]
    return ranks

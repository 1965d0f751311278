"""Linear histograms; from the logarithmic bins of the statistics the mass is spread evenly over each bin."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ptq4snn.observation.channel_statistics import bin_edges
from ptq4snn.schema.figure_types import Bins

__all__ = ["bins_of", "quantiles", "rebin", "share_outside"]

POINT = torch.finfo(torch.float64).tiny  # the least width that can be divided by


def bins_of(values: Tensor, bins: int) -> Bins:
    """Counts of values in equal bins between their extremes."""
    low, high = float(values.min()), float(values.max())
    edges = torch.linspace(low, high if high > low else low + 1.0, bins + 1, dtype=torch.float64)
    counts = torch.histogram(values, edges).hist
    return {"edges": edges.tolist(), "counts": counts.long().tolist()}


def _ordered(histogram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower edges, upper edges and counts of the bins that hold something, from left to right.

    The bin of zero has no width. Nearly all that it holds is zero itself, from a reset: it stays one point,
    to the right of an edge at zero, as in any histogram.
    """
    inner, outer = bin_edges()
    outer[0] = POINT
    low, high = torch.minimum(inner, outer), torch.maximum(inner, outer)
    used = histogram.nonzero().flatten()
    order = used[low[used].argsort()]
    return low[order], high[order], histogram[order].double()


def _below(histogram: Tensor, x: Tensor) -> Tensor:
    """Mass below each of the values x [n]."""
    low, high, counts = _ordered(histogram)
    part = ((x[:, None] - low) / (high - low)).clamp(0, 1)  # [n, bins]
    return part @ counts


def quantiles(histogram: Tensor, shares: Sequence[float]) -> list[float]:
    """Where the given shares of the mass are reached; zeros of an empty histogram."""
    low, high, counts = _ordered(histogram)
    if not len(counts):
        return [0.0 for _ in shares]
    total = counts.cumsum(0)
    out = []
    for share in shares:
        wanted = share * total[-1]
        i = min(int(torch.searchsorted(total, wanted)), len(counts) - 1)
        inside = 1 - (total[i] - wanted) / counts[i]
        out.append(float(low[i] + inside * (high[i] - low[i])))
    return out


def rebin(histogram: Tensor, low: float, high: float, bins: int) -> Bins:
    """The mass in equal bins from low to high; what lies beyond is in the first and the last."""
    edges = torch.linspace(low, high if high > low else low + 1.0, bins + 1, dtype=torch.float64)
    below = _below(histogram, edges[1:-1])
    ends = torch.cat([below.new_zeros(1), below, histogram.sum().double()[None]])
    return {"edges": edges.tolist(), "counts": ends.diff().tolist()}


def share_outside(histogram: Tensor, low: float, high: float) -> float:
    """Share of the mass below low or above high."""
    below, upto = _below(histogram, torch.tensor([low, high], dtype=torch.float64)).tolist()
    total = float(histogram.sum())
    return (below + total - upto) / total if total else 0.0

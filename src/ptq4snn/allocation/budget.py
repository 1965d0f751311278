"""Bits by score under a budget: the best channels get 8 bits, the boundary between 4 and 2 is searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Channels", "allocate", "average_bits"]


@dataclass(frozen=True)
class Channels:
    """All eligible channels of a network, in order of neuron and channel."""

    elements: Tensor  # [n] int64: state values a channel holds
    protected: Tensor  # [n] bool: at least 4 bits


def average_bits(bits: Tensor, elements: Tensor) -> float:
    """Element-weighted average."""
    return float((bits * elements).sum()) / float(elements.sum())


def ranking(score: Tensor) -> Tensor:
    """Channel indices from the highest score to the lowest; ties by neuron and channel."""
    return torch.sort(score, descending=True, stable=True).indices


def assign(order: Tensor, channels: Channels, n8: int, n4: int, low: int = 2, protect: bool = True) -> Tensor:
    """8 bits for the first n8 channels of `order`, 4 for the next n4, `low` for the rest."""
    bits = torch.full_like(order, low)
    bits[order[:n8]] = 8
    bits[order[n8 : n8 + n4]] = 4
    if protect:
        bits = torch.where(channels.protected & (bits < 4), torch.full_like(bits, 4), bits)
    return bits


def nearest(make: Callable[[int], Tensor], top: int, budget: float, elements: Tensor) -> Tensor:
    """The allocation make(n), 0 <= n <= top, nearest to the budget; of two equally near the lower.

    The average grows with n, so the last n at or below the budget is found by bisection.
    """
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        if average_bits(make(middle), elements) <= budget:
            low = middle
        else:
            high = middle - 1
    below, above = make(low), make(min(low + 1, top))
    under, over = (average_bits(b, elements) - budget for b in (below, above))
    return above if abs(over) < abs(under) else below


def allocate(score: Tensor, channels: Channels, budget: float, percentile: float) -> Tensor:
    """Bits [n]. The top (100 - P) % get 8; where the rest cannot meet the budget, that share moves too."""
    order, n = ranking(score), len(score)
    elements = channels.elements
    n8 = round((100 - percentile) / 100 * n)
    protect = average_bits(assign(order, channels, 0, 0), elements) <= budget
    if average_bits(assign(order, channels, n8, n - n8, protect=protect), elements) < budget:
        return nearest(lambda i: assign(order, channels, i, n - i, protect=protect), n, budget, elements)
    if average_bits(assign(order, channels, n8, 0, protect=protect), elements) > budget:
        return nearest(lambda i: assign(order, channels, i, 0, protect=protect), n, budget, elements)
    return nearest(lambda i: assign(order, channels, n8, i, protect=protect), n - n8, budget, elements)

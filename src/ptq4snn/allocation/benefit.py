"""Bits by measured benefit: of all allocations within the budget the one with the least expected cost.

    min  sum_c weight_c cost_c(b_c)     s.t.     sum_c b_c N_c <= budget sum_c N_c

cost_c(b) is the replay cost of channel c at b bits and its best exponent. For a price p of one bit every
channel takes the width with the least weight * cost + p * b * N; the price is found by bisection.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.allocation.budget import Channels, average_bits

__all__ = ["cheapest"]

STEPS = 60
PROTECTED = 4


def cheapest(costs: Tensor, widths: tuple[int, ...], channels: Channels, budget: float) -> Tensor:
    """Bits [n] from costs [n, widths] (weighted), element-weighted on average at most the budget."""
    bits = torch.tensor(sorted(widths))
    costs = costs.cummin(1).values  # more bits never cost more: what says otherwise is noise
    forbidden = channels.protected[:, None] & (bits < PROTECTED)
    least = torch.where(forbidden, bits.max(), bits).amin(1)
    if len(bits[bits >= PROTECTED]) and average_bits(least, channels.elements) <= budget:
        costs = costs.masked_fill(forbidden, torch.inf)
    size = (bits * channels.elements[:, None]).double()  # [n, widths]

    def at(price: float) -> Tensor:
        return bits[(costs + price * size).argmin(1)]

    low, high = 0.0, 1.0
    while average_bits(at(high), channels.elements) > budget and high < 1e30:
        high *= 4
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if average_bits(at(middle), channels.elements) <= budget else (middle, high)
    return _spend(at(high), costs, bits, channels.elements, budget)


def _spend(chosen: Tensor, costs: Tensor, bits: Tensor, elements: Tensor, budget: float) -> Tensor:
    """Give what is left of the budget to the widening that gains most for each bit, as long as one fits.

    Channels that cost alike change at the same price, so what is left may be worth many of them.
    """
    left = budget * float(elements.sum()) - float((chosen * elements).sum())
    out = chosen.clone()
    while True:
        more = ((bits - out[:, None]) * elements[:, None]).double()  # [n, widths]
        now = costs.gather(1, torch.searchsorted(bits, out)[:, None])
        gain = torch.where((more > 0) & (more <= left), (now - costs) / more, 0.0)
        best = int(gain.argmax())
        i, width = divmod(best, len(bits))
        if not gain[i, width] > 0:
            return out
        out[i], left = bits[width], left - float(more[i, width])

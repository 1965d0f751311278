"""Bits by measured benefit: of all allocations within the budget the one with the least expected cost.

    min  sum_c weight_c cost_c(b_c)     s.t.     sum_c b_c N_c <= budget sum_c N_c

cost_c(b) is the replay cost of channel c at b bits and its best exponent. For a price p of one bit every channel
takes the width with the least weight * cost + p * b * N; the price is found by bisection.
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
    if average_bits(least, channels.elements) <= budget:
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
    """Give what is left of the budget to the channels that gain most for each bit, one width up."""
    left = budget * float(elements.sum()) - float((chosen * elements).sum())
    index = torch.searchsorted(bits, chosen)
    above = (index + 1).clamp_max(len(bits) - 1)
    price = ((bits[above] - chosen) * elements).double()
    gain = (costs.gather(1, index[:, None]) - costs.gather(1, above[:, None]))[:, 0] / price.clamp_min(1)
    out = chosen.clone()
    for i in torch.sort(gain, descending=True, stable=True).indices.tolist():
        if 0 < price[i] <= left and gain[i] > 0:
            out[i], left = bits[above[i]], left - float(price[i])
    return out

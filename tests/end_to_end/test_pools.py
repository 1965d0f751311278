"""Means of windows of different sizes: borders that do not count, windows cut at the end, adaptive pools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.models.neuron import LIF

STEPS = 4
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "count_include_pad=False": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "ceil_mode": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "ceil_mode, padded": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "adaptive, fewer": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive, more": lambda x: F.adaptive_avg_pool2d(x, (9, 14)),
}


class Pooling(nn.Module):
    def __init__(self, pool: Callable[[Tensor], Tensor], spikes: bool) -> None:
        super().__init__()
        self.pool, self.spikes = pool, spikes
        self.stem, self.n = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.conv, self.m, self.head = nn.Conv2d(6, 8, 3, padding=1), LIF(v_threshold=0.5), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n(self.stem(x).expand(STEPS, -1, -1, -1, -1)).flatten(0, 1)
        y = self.conv(self.pool(y)) if self.spikes else self.pool(self.conv(y))
        out: Tensor = self.head(self.m(y.unflatten(0, (STEPS, -1))).mean((3, 4))).mean(0)
        return out


IMAGES = drawn(24, 2, 7, 7)


@pytest.mark.parametrize("spikes", [True, False])
@pytest.mark.parametrize("name", POOLS)
def test_means_of_different_sizes(name: str, spikes: bool, tmp_path: Path) -> None:
    net = seeded(lambda: Pooling(POOLS[name], spikes))
    q = quantized(net, IMAGES, tmp_path, "fast+w8m8")
    assert bool(torch.as_tensor(q(IMAGES)).any()) and agreement(net, q, IMAGES) > 0.8

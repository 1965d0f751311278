"""A network small enough for a million steps: two convolutions, a head at every step, its mean over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF

__all__ = ["SHAPE", "Net", "frames", "make"]

SHAPE = (2, 6, 6)  # of a frame
POOL = 64  # different frames


class Net(nn.Module):
    """[T, B, 2, 6, 6] to the currents of 3 classes at every step [T, B, 3], and their mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(2, 4, 3, 1, 1), LIF()
        self.c2, self.n2 = nn.Conv2d(4, 4, 3, 2, 1), LIF()
        self.fc = nn.Linear(36, 3)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.6)
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, batch = x.shape[:2]
        s1 = self.n1(self.c1(x.flatten(0, 1)).view(steps, batch, 4, 6, 6))
        s2 = self.n2(self.c2(s1.flatten(0, 1)).view(steps, batch, 4, 3, 3))
        y = self.fc(s2.flatten(2).flatten(0, 1)).view(steps, batch, 3)
        return y, y.mean(0)


def frames(seed: int) -> NDArray[np.float32]:
    """[POOL, 1, 2, 6, 6]; a step takes one of them."""
    return np.random.default_rng(seed).random((POOL, 1, *SHAPE), dtype=np.float32)


def make(path: Path) -> Any:
    """The bundle at `path`, mixed widths of states; the simulation that it was made from."""
    x = torch.rand(8, 32, *SHAPE, generator=torch.Generator().manual_seed(1))
    q = ptq4snn.quantize(Net(), x, "fast+w4m4", batch_axis=1)
    q.save(path)
    return q

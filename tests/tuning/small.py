"""A small network on which squared error fails: soft reset, leak 0.95, 25 steps, long negative tails."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.models.neuron import LIF


class Slow(nn.Module):
    """Three linear layers of soft-reset neurons on x[B, 8], shown for 25 steps."""

    def __init__(self, width: int = 24, T: int = 25) -> None:
        super().__init__()
        self.T = T

        def neuron() -> LIF:
            return LIF(tau=20.0, decay_input=False, v_reset=None)

        self.a, self.n1 = nn.Linear(8, width), neuron()
        self.b, self.n2 = nn.Linear(width, width), neuron()
        self.c, self.n3 = nn.Linear(width, width), neuron()
        self.head = nn.Linear(width, 4)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.35 if p.dim() > 1 else 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(self.a(x).expand(self.T, *x.shape[:-1], -1))
        out: Tensor = self.head(self.n3(self.c(self.n2(self.b(y))))).mean(0)
        return out


def samples(n: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 8), generator=torch.Generator().manual_seed(seed)).float() / 128 - 1

"""A tiny network with ten classes that quantizes in a moment, and samples of which all classes come out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.models.neuron import LIF

STEPS, INPUTS, CLASSES = 4, 12, 10


class Tiny(nn.Module):
    """Three fully connected layers over T steps: logits [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.lif1 = nn.Linear(INPUTS, 24), LIF()
        self.b, self.lif2 = nn.Linear(24, 20), LIF()
        self.c, self.lif3 = nn.Linear(20, 16), LIF()
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.lif1(self.a(x).expand(STEPS, -1, -1))
        return self.head(self.lif3(self.c(self.lif2(self.b(y))))).mean(0)


def tiny(seed: int = 0) -> Tiny:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Tiny()
        with torch.no_grad():
            for layer in (net.a, net.b, net.c):
                layer.weight.normal_(0, 3.0 / layer.in_features**0.5)
                layer.bias.uniform_(0, 0.5)
    return net.eval()


def samples(n: int = 240, seed: int = 1) -> Tensor:
    """On a grid of 8 bits."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, (n, INPUTS), generator=g).float() / 64


def labels(net: Tiny, x: Tensor, wrong: float = 0.2) -> Tensor:
    """What the float network decides, but for some."""
    with torch.no_grad():
        y = net(x).argmax(1)
    g = torch.Generator().manual_seed(2)
    noisy = torch.rand(len(x), generator=g) < wrong
    return torch.where(noisy, torch.randint(0, CLASSES, (len(x),), generator=g), y)

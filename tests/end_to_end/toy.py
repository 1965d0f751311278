"""Small networks that the command line builds as `toy:NAME`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.models.neuron import LIF


class Toy(nn.Module):
    """Two linear layers and two neurons on x[B, 6], shown for four steps."""

    def __init__(self, hidden: int = 16, neuron: type[nn.Module] = LIF) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(6, hidden), neuron()
        self.b, self.n2 = nn.Linear(hidden, hidden), neuron()
        self.head = nn.Linear(hidden, 3)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(self.a(x).expand(4, *x.shape[:-1], -1))
        out: Tensor = self.head(self.n2(self.b(y))).mean(0)
        return out


def net() -> nn.Module:
    return Toy()


def wider() -> nn.Module:
    return Toy(hidden=20)


def without_neurons() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class OnInput(nn.Module):
    """A neuron that reads the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.head = LIF(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.n(x.expand(4, *x.shape))).mean(0)
        return out


def on_input() -> nn.Module:
    return OnInput()


def silent() -> nn.Module:
    model = Toy()
    with torch.no_grad():
        model.b.weight.mul_(0)
        model.b.bias.fill_(-1)
    return model


def broken() -> nn.Module:
    model = Toy()
    with torch.no_grad():
        model.b.weight[0, 0] = torch.nan
    return model

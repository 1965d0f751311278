"""A small network of the user's own, as the text of a module."""

from __future__ import annotations

__all__ = ["NET"]

NET = """
import torch
from torch import nn
from ptq4snn.models.neuron import LIF

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n1 = nn.Linear(6, 16), LIF()
        self.b, self.n2 = nn.Linear(16, 16), LIF()
        self.head = nn.Linear(16, 3)
        g = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g))

    def forward(self, x):
        y = self.n1(self.a(x).expand(4, *x.shape[:-1], -1))
        return self.head(self.n2(self.b(y))).mean(0)

def net(): return Net().eval()
"""

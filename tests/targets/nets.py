"""Small networks for targets: dense ones with any neuron, and one with all that a chip may lack."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step


def lively(model: nn.Module) -> nn.Module:
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.7)
    return model.eval()


class Dense(nn.Module):
    """[B, 6] to rates [B, 4], for 4 steps; with `head` a classifier behind the last neuron."""

    def __init__(self, neuron: Callable[[], nn.Module], width: int = 16, head: bool = False) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(6, width), neuron()
        self.b, self.n2 = nn.Linear(width, width), neuron()
        self.c, self.n3 = nn.Linear(width, 4), neuron()
        self.head = nn.Linear(4, 3) if head else nn.Identity()
        lively(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(self.a(x).expand(4, *x.shape[:-1], -1))
        y = self.head(self.n3(self.c(self.n2(self.b(y)))))
        return y.mean(0)


class Rich(nn.Module):
    """Images [B, 2, 6, 6] to logits [B, 3]: convolutions, a maximum, a shortcut, attention of spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.n1 = nn.Conv2d(2, 8, 3, padding=1), LIF(v_threshold=0.5)
        self.pool = nn.MaxPool2d(2)
        self.deep, self.n2 = nn.Conv2d(8, 8, 3, padding=1), LIF(v_threshold=0.5)
        self.n3 = LIF(v_threshold=0.5)
        self.head = nn.Linear(8, 3)
        lively(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(per_step(self.conv, x.expand(4, *x.shape)))
        y = per_step(self.pool, y)
        y = self.n2(per_step(self.deep, y)) + y  # [T, B, 8, 3, 3]
        q = y.flatten(3)
        out = self.n3(q @ q.transpose(-1, -2) @ q * 0.125)
        logits: Tensor = self.head(out.mean(-1)).mean(0)
        return logits


def bundle(path: Path, net: nn.Module, recipe: Any = "fast+w4m4", *shape: int, **options: Any) -> Path:
    """The network, quantized and saved."""
    g = torch.Generator().manual_seed(1)
    x = torch.rand(24, *(shape or (6,)), generator=g) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given: dict[str, Any] = {"holdout": 4, "sensitivity_batches": 1} if isinstance(recipe, str) else {}
        ptq4snn.quantize(net, x, recipe, **given, **options).save(path)
    return path

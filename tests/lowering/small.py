"""Small networks that fire, quantized fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.program import Program
from ptq4snn.recipe import Recipe

STEPS = 3


def lively(build: Callable[[], nn.Module], x: Tensor, seed: int = 0) -> nn.Module:
    """Random weights with BatchNorm statistics of `x`, so that every neuron fires."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
        for name, m in model.named_modules():
            if name.endswith("attn_lif"):  # products of few spikes
                m.v_threshold = 0.06
            elif isinstance(m, nn.modules.batchnorm._BatchNorm):
                m.momentum = None
                nn.init.normal_(m.weight, 1.0, 0.1)
                nn.init.normal_(m.bias, 0.8, 0.2)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0.0, (4 / m.in_features) ** 0.5)
                nn.init.constant_(m.bias, 0.5)
            elif isinstance(m, nn.Conv2d) and m.bias is not None:
                nn.init.constant_(m.bias, 1.0)
        model.train()
        with torch.no_grad():
            for _ in range(2):
                model(x)
    return model.eval()


def quantized(model: nn.Module, x: Tensor, batch_axis: int = 0, **changes: Any) -> QuantizedModel:
    recipe = Recipe(
        rounding="nearest", calibration=8, holdout=4, micro_batch=4, allocation="uniform",
        objective="squared_error", zero_point="none",
    )  # fmt: skip
    return ptq4snn.quantize(model, x, recipe, batch_axis=batch_axis, **changes)


def program_of(q: QuantizedModel) -> Program:
    assert q.program is not None, q.not_lowered
    return q.program


def images(n: int = 8, channels: int = 2, size: int = 8, seed: int = 0) -> Tensor:
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(seed))


class Between(nn.Module):
    """conv -> spikes [T, B, 4, 8, 8] -> `body` -> `second`, a projection -> spikes -> linear [B, 5]."""

    def __init__(self, body: Callable[[Tensor], Tensor], second: nn.Module | None = None) -> None:
        super().__init__()
        self.stem, self.lif1 = nn.Conv2d(2, 4, 3, padding=1), LIF(v_threshold=0.5)
        self.body = body
        nn.init.normal_(self.stem.weight, 0.1, 0.6)
        with torch.no_grad():
            between = body(self.first(images()))
            self.second = second or nn.Conv2d(between.shape[2], 6, 3, padding=1)
            current = per_step(self.second, between)
            layer: Any = [m for m in self.second.modules() if hasattr(m, "weight")][-1]
            layer.weight /= current.std()  # mean 0.7, deviation 1: the second neuron fires
            layer.bias += 0.7 - layer.bias - (current - layer.bias.mean()).mean() / current.std()
        self.lif2 = LIF(v_threshold=0.7, v_reset=None)
        self.head = nn.Linear(current.flatten(2).shape[2], 5)

    def first(self, x: Tensor) -> Tensor:
        spikes: Tensor = self.lif1(self.stem(x).expand(STEPS, len(x), 4, 8, 8))
        return spikes

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 8, 8]
        s = self.lif2(per_step(self.second, self.body(self.first(x))))
        logits: Tensor = self.head(s.flatten(2)).mean(0)
        return logits


def between(body: Callable[[Tensor], Tensor], second: Callable[[], nn.Module] | None = None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Between(body, None if second is None else second()).eval()

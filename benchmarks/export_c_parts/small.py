"""The network that ours and Qualia's C are compared on, with random weights under which some 15 % fire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ptq4snn
from export_c_parts.qualia import CLASSES, LAYERS, SIDE, STEPS
from ptq4snn.models.neuron import IF
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model

__all__ = ["images", "small", "weights_of"]

GAIN = 1.2


class Small(nn.Module):
    """[B, 1, 28, 28], shown for all steps, to how often each class fires."""

    def __init__(self) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        for i, (cin, cout, stride) in enumerate(LAYERS):
            setattr(self, f"conv{i}", nn.Conv2d(cin, cout, 3, stride, 1))
            setattr(self, f"if{i}", IF(v_reset=None))
        self.fc, self.last = nn.Linear(LAYERS[-1][1] * (SIDE // 4) ** 2, CLASSES), IF(v_reset=None)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * GAIN / max(1, p[0].numel()) ** 0.5 * (p.ndim > 1))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stack([x] * STEPS)
        for i in range(len(LAYERS)):
            conv, neuron = getattr(self, f"conv{i}"), getattr(self, f"if{i}")
            y = neuron(torch.stack([conv(z) for z in y]))
        rates: Tensor = self.last(self.fc(y.flatten(2))).mean(0)
        return rates


def images(count: int, seed: int) -> Tensor:
    return torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def small(folder: Path, **options: Any) -> Model:
    q = ptq4snn.quantize(Small().eval(), images(64, 1), "w4m4", progress=False, **options)
    q.save(folder / "small.ptq")
    return load_model_file(folder / "small.ptq")


def weights_of() -> dict[str, Any]:
    return {k: v.numpy() for k, v in Small().state_dict().items()}

"""One small network of every family, prepared once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from conftest import build, lively, pixels
from oracles.meta_spikeformer import small
from torch import Tensor, nn

from ptq4snn.models.neuron import IF, LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.vgg import SpikingVGG
from ptq4snn.pipeline import Prepared, prepare
from ptq4snn.recipe import Recipe

RECIPE = Recipe(
    weights=3,
    correction="none",
    weight_scales="error",
    coupling="none",
    allocation="uniform",
    calibration=24,
    holdout=8,
    rounding="brecq",
    iterations=5,
)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return lively(make())


class Loop(nn.Module):
    """A soft reset, a time loop, a residual, a projection that runs twice in a step, a depthwise one."""

    def __init__(self, curious: bool = False) -> None:
        super().__init__()
        self.curious = curious
        self.stem, self.n0 = nn.Conv1d(3, 6, 3, padding=1), IF(v_reset=None)
        self.wide, self.n1 = nn.Conv1d(6, 6, 3, padding=1, groups=6), LIF(v_threshold=0.2)
        self.mix, self.n2 = nn.Conv1d(6, 6, 1), IF(v_threshold=0.4, v_reset=None)
        self.head = nn.Linear(6 * 16, 4)
        with torch.no_grad():
            for layer in (self.stem, self.wide, self.mix):
                layer.weight.mul_(3)  # so that all fire

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, 4, 4]
        x = x.flatten(2)
        logits = []
        for _ in range(3):
            y = self.n0(self.stem(x)[None])
            if self.curious and float(y.sum()) < 0:  # looks at values
                return x
            z = self.n1(self.wide(y[0])[None]) + y
            z = self.n2(self.mix(z[0])[None]) + self.n2(self.mix(y[0])[None])
            logits.append(self.head(z[0].flatten(1)))
        return torch.stack(logits).mean(0)


def transformer() -> nn.Module:
    model = seeded(lambda: SpikeDrivenTransformer(16, 1, 2))
    for name, module in model.named_modules():
        if name.endswith(("q_bn", "k_bn", "v_bn")):  # queries must meet keys
            nn.init.constant_(module.bias, 1.5)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {  # and the size of its images
    "sew": (build, 12),
    "sdt": (transformer, 16),
    "vgg": (lambda: seeded(lambda: SpikingVGG(((8,), (8, 8)))), 8),
    "meta": (lambda: small("plain"), 16),
    "loop": (lambda: seeded(Loop), 4),
    "curious": (lambda: seeded(lambda: Loop(curious=True)), 4),
}


@functools.cache
def prepared(name: str) -> Prepared:
    make, size = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(make(), pixels(24, size), RECIPE)

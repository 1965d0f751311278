"""The bytes of state that a report tells are those that the runtime holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from oracles.numbers import known
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.runtime.loading import model_of
from ptq4snn.runtime.state import State


class Dense(nn.Module):
    """Fully connected: every channel has a single element."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (12, 33, 70, 21, 5)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.neurons = nn.ModuleList([LIF() for _ in sizes[2:]])

    def forward(self, x: Tensor) -> Tensor:  # [B, 12]
        y = x.expand(4, *x.shape)
        for layer, neuron in zip(self.layers[:-1], self.neurons, strict=True):
            y = neuron(layer(y))
        return self.layers[-1](y).mean(0)


class Flat(nn.Module):
    """A neuron behind a flattened image: each element has a channel of its own, stored by position."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.first = nn.Conv2d(3, 5, 3, padding=1), LIF()
        self.b, self.second = nn.Conv2d(5, 3, 3, padding=1), LIF()
        self.c, self.third, self.d = nn.Linear(48, 7), LIF(), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, 4, 4]
        y = x.expand(4, *x.shape)
        y = self.first(self.a(y.flatten(0, 1)).unflatten(0, y.shape[:2]))
        y = self.b(y.flatten(0, 1)).flatten(1).unflatten(0, y.shape[:2])
        return self.d(self.third(self.c(self.second(y)))).mean(0)


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "fully connected": (Dense, (12,)),
    "flattened": (Flat, (3, 4, 4)),
    "convolutions": (
        lambda: SEWResNet(widths=(6, 9), blocks=(1, 1), strides=(2, 2), stem=5, num_classes=3, T=4),
        (3, 8, 8),
    ),
    "transformer": (
        lambda: SpikeDrivenTransformer(width=24, depth=1, heads=2, num_classes=3, T=2),
        (3, 16, 16),
    ),
}


@pytest.mark.filterwarnings("ignore::ptq4snn.errors.SilentNetworkWarning")
@pytest.mark.parametrize("recipe", ["fast+w4m4", "fast+uniform+squared_error+w4m3", "paper+nearest+w4m4"])
@pytest.mark.parametrize("name", NETS)
def test_the_report_tells_what_the_runtime_holds(name: str, recipe: str) -> None:
    build, shape = NETS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = build().eval()
    for p in net.parameters():
        p.data *= 3
    x = torch.rand(32, *shape, generator=torch.Generator().manual_seed(1))
    q = ptq4snn.quantize(net, x, recipe, holdout=16, sensitivity_batches=1)
    assert q.program is not None, q.not_lowered
    state = State.new(model_of(q.program, q.plan, q.integers), 1)
    carried = [n for n in q.plan.neurons.values() if n.carries_state]
    names = {op.output: op.name for op in q.program.operations}
    held = sum(a.nbytes for v, a in state.rows.items() if names[v] in {n.name for n in carried})
    told = q.report["summary"]["state_bytes"]
    assert told["payload"] == held
    assert told["float"] == 4 * sum(n.channels * n.elements for n in carried)
    if name == "fully connected":
        assert held < told["float"] / 2 < q.report["summary"]["state_packets"]["payload"]
        assert known(q.report["summary"]["state_energy"]) < 1

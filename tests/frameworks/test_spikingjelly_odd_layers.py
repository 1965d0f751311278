"""SpikingJelly's layers that are more than their names say, and its nets of one step a call."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
import torch

pytest.importorskip(
    "spikingjelly", reason="runs from test_spikingjelly_generations.py, one generation at a time"
)

from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import FoldingError, UnsupportedModel

X = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 3


def node(mode: str = "m") -> nn.Module:
    return neuron.LIFNode(decay_input=False, step_mode=mode)


class Net(nn.Module):
    """conv, neuron, `middle`, neuron, linear over whole sequences."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.a, self.n1 = layer.Conv2d(1, 8, 3, padding=1, step_mode="m"), node()
        self.b, self.middle, self.n2 = layer.Conv2d(8, 8, 3, padding=1, step_mode="m"), middle, node()
        self.c = layer.Linear(8 * 64, 10, step_mode="m")
        fill(self)

    def forward(self, x: Tensor) -> Tensor:
        functional.reset_net(self)
        y = self.n1(self.a(x.unsqueeze(0).repeat(4, 1, 1, 1, 1)))
        return self.c(self.n2(self.middle(self.b(y))).flatten(2)).mean(0)


def fill(model: nn.Module) -> None:
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                m.weight.copy_(torch.randn(m.weight.shape, generator=g) * 0.4)
    model.eval()


def several_steps(kind: str) -> nn.Module:
    found: Any = getattr(layer, kind, None)
    if found is None:
        pytest.skip(f"this generation of SpikingJelly has no {kind}")
    norm: nn.Module = found(4, 8, step_mode="m") if "ThroughTime" in kind else found(4, 8)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in norm.parameters():
            p.copy_(torch.rand(p.shape, generator=g) + 0.3)
    return norm


@pytest.mark.parametrize("kind", ["BatchNormThroughTime2d", "TemporalEffectiveBatchNorm2d"])
def test_a_norm_for_each_step_is_refused_and_the_advice_works(kind: str) -> None:
    net = Net(several_steps(kind)).eval()
    with pytest.raises(FoldingError, match="BatchNorm") as refused:
        ptq4snn.quantize(net, X, "fast+w8m8")
    advised = re.search(r"overrides=(\{.*\}\})", str(refused.value))
    assert advised is not None
    q = ptq4snn.quantize(net, X, "fast+w8m8", overrides=ast.literal_eval(advised[1]))
    assert "n2" in q.plan.excluded and set(q.plan.neurons) == {"n1"}


@pytest.mark.parametrize(("kind", "shape"), [("WSConv2d", (8, 8, 3)), ("WSLinear", (8, 8))])
def test_standardised_weights_are_the_weights(kind: str, shape: tuple[int, ...]) -> None:
    found: Any = getattr(layer, kind, None)
    if found is None:
        pytest.skip(f"this generation of SpikingJelly has no {kind}")
    conv = kind == "WSConv2d"

    class Odd(Net):
        def __init__(self) -> None:
            extra = {"padding": 1} if conv else {}
            super().__init__(nn.Sequential(found(*shape, **extra, step_mode="m")))

        def forward(self, x: Tensor) -> Tensor:
            functional.reset_net(self)
            y = self.n1(self.a(x.unsqueeze(0).repeat(4, 1, 1, 1, 1)))
            z = self.middle(y) if conv else self.middle(y.movedim(2, -1)).movedim(-1, 2)
            return self.c(self.n2(z).flatten(2)).mean(0)

    net = Odd()
    q = ptq4snn.quantize(net, X, "fast+w8m8")
    assert "middle.0.plain" in q.plan.projections and q.program is not None
    with torch.no_grad():
        expected = net(X)
        assert (q(X) - expected).norm() / expected.norm() < 0.3


def one_step() -> nn.Module:
    net = nn.Sequential(
        layer.Conv2d(1, 8, 3, padding=1), node("s"), layer.Conv2d(8, 8, 3, padding=1), node("s"),
        nn.Flatten(), layer.Linear(512, 10), node("s"),
    )  # fmt: skip
    fill(net)
    return net


def run(net: Any, x: Tensor) -> Tensor:
    functional.reset_net(net)
    return sum(net(x) for _ in range(6)) / 6


def test_step_mode_s_with_the_loop_outside() -> None:
    with pytest.raises(UnsupportedModel, match="single time step"):
        ptq4snn.quantize(one_step(), X, "fast+w8m8")
    q = ptq4snn.quantize(one_step(), X, "fast+w8m8", loop=run)
    assert q.plan.steps == 6 and q.program is not None
    assert torch.equal(run(q, X), q.sequence(X))

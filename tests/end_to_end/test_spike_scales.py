"""Spikes times a factor of their channel: in the weights of what reads them, or behind the outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from oracles.frameworks import runs_everywhere
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.models.neuron import LIF

STEPS = 4
IMAGES = drawn(32, 2, 8, 8)


class Scaled(nn.Module):
    """Three neurons whose spikes are scaled: in front of a pool, of a flatten, and of the output."""

    def __init__(self, pool: Callable[..., Tensor] = F.avg_pool2d, ends: bool = True) -> None:
        super().__init__()
        self.pool, self.ends = pool, ends
        self.a, self.n = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.2)
        self.b, self.m = nn.Conv2d(6, 6, 3, groups=2), LIF(v_threshold=0.2)
        self.c, self.k = nn.Linear(24, 5), LIF(v_threshold=0.2)
        self.first = nn.Parameter(torch.linspace(0.4, 1.9, 6).view(6, 1, 1))
        self.register_buffer("second", torch.linspace(0.5, 1.5, 6).view(1, 6, 1, 1))
        self.last = nn.Parameter(torch.linspace(0.5, 2.5, 5))

    def forward(self, x: Tensor) -> Tensor:
        s = self.n(self.a(x).expand(STEPS, -1, -1, -1, -1)) * self.first
        s = self.m(self.b(self.pool(s.flatten(0, 1), 2)).unflatten(0, s.shape[:2])) / self.second
        s = self.k(self.c(s.flatten(2)))
        out: Tensor = (s * self.last if self.ends else s).mean(0)
        return out


@pytest.mark.parametrize("pool", [F.avg_pool2d, F.max_pool2d])
@pytest.mark.parametrize("ends", [True, False])
def test_factors_are_in_the_weights(pool: Callable[..., Tensor], ends: bool, tmp_path: Path) -> None:
    net = seeded(lambda: Scaled(pool, ends))
    q = runs_everywhere(net, IMAGES, tmp_path, "fast+w8m8", time_axis=None)
    assert [e.kind for e in q.plan.edits] == ["scale"] * (2 + ends)
    assert len(q.plan.outputs[0].output_scales) == (5 if ends else 0)
    with torch.no_grad():
        close = (q(IMAGES) - net(IMAGES)).abs().mean() / net(IMAGES).abs().mean()
    assert float(close) < 0.25
    weight = q.integers["b"].weight * torch.tensor(q.plan.projections["b"].scales).view(-1, 1, 1, 1)
    b, first = net.get_submodule("b"), net.get_parameter("first").detach().double()
    factors = first.view(2, 1, 3).expand(2, 3, 3).reshape(6, 3, 1, 1)  # in two groups
    gain = float(q.specs["m"].gain)  # of the neuron, which is folded too
    expected = b.get_parameter("weight").detach().double() * factors * gain
    assert float((weight - expected).abs().max()) < 0.02


def test_exporters(tmp_path: Path) -> None:
    quantized(seeded(Scaled), IMAGES, tmp_path)
    ptq4snn.export.c(tmp_path / "q.ptq", tmp_path / "c")
    ort = pytest.importorskip("onnxruntime")
    ptq4snn.export.onnx(tmp_path / "q.ptq", tmp_path / "q.onnx", form="scan", steps=STEPS)
    session = ort.InferenceSession(tmp_path / "q.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES.numpy()})
    np.testing.assert_array_equal(found, runtime.load(tmp_path / "q.ptq")(IMAGES.numpy()))


class Odd(Scaled):
    """Scaled spikes of several channels are joined, go into a neuron, or into a product."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        s = self.n(self.a(x).expand(STEPS, -1, -1, -1, -1)) * self.first
        if self.how == "channels":
            s = s.mean(2, keepdim=True).expand(-1, -1, 6, -1, -1)
        elif self.how == "neuron":
            s = self.m(s)
        elif self.how == "product":
            s = s * (s > 0).to(s)
        s = F.avg_pool2d(s.flatten(0, 1), 2)
        out: Tensor = self.c(self.b(s).flatten(1)).unflatten(0, (STEPS, -1)).mean(0)
        return out


@pytest.mark.parametrize("how", ["channels", "neuron", "product"])
def test_what_cannot_be_folded_is_named(how: str) -> None:
    with pytest.raises(UnsupportedOperation) as why:
        ptq4snn.quantize(seeded(lambda: Odd(how)), IMAGES, "fast+w4m4")
    assert "multiply the weights of the next layer instead" in str(why.value) or how == "neuron"


def test_agreement_with_the_float_network(tmp_path: Path) -> None:
    net = seeded(Scaled)
    assert agreement(net, quantized(net, IMAGES, tmp_path, "w4m4"), IMAGES) > 0.7

"""Calls in the user's own forward that integers follow through a module beside it: spikes added to a current,
scales and constants for each channel, functional layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from end_to_end.structures import agreement, drawn, quantized, seeded
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn.errors import BundleError, UnsupportedOperation
from ptq4snn.models.neuron import LIF

snn = pytest.importorskip("snntorch")

STEPS = 4


def leaky() -> nn.Module:
    return snn.Leaky(beta=0.9, init_hidden=True)


def forget(net: nn.Module) -> None:
    for m in net.modules():
        if isinstance(m, snn.Leaky):
            m.reset_mem()


class Spiking(nn.Module):
    """neuron(W s + s) in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b, self.m = nn.Linear(8, 16), leaky(), nn.Linear(16, 16), leaky()
        self.c = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        forget(self)
        out = torch.zeros(len(x), 3)
        for _ in range(STEPS):
            s = self.n(self.a(x))
            out = out + self.c(self.m(self.b(s) + s))
        return out


class ByLayer(nn.Module):
    """One line of code serves two layers of different width in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.n = nn.Linear(8, 16), leaky()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(12, 12)])
        self.neurons = nn.ModuleList([leaky(), leaky()])
        self.between, self.k, self.last = nn.Linear(16, 12), leaky(), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        forget(self)
        out = torch.zeros(len(x), 3)
        for _ in range(STEPS):
            s = self.n(self.first(x))
            for i, (layer, neuron) in enumerate(zip(self.layers, self.neurons, strict=True)):
                s = neuron(layer(s) + s)
                if i == 0:
                    s = self.k(self.between(s))
            out += self.last(s)
        return out


class Block(nn.Module):
    """Whole sequences [T, B, C, H, W]; the shortcut is added in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.bn, self.n = (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            LIF(),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x.flatten(0, 1))).reshape(x.shape)
        y += x
        spikes: Tensor = self.n(y)
        return spikes


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.n = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.blocks = nn.Sequential(Block(6), Block(6))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n(self.stem(x).expand(STEPS, -1, -1, -1, -1))
        out: Tensor = self.head(self.blocks(y).mean((3, 4))).mean(0)
        return out


class Scaled(nn.Module):
    """LayerScale, a constant for each channel, a constant for all, a negative factor."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.n = nn.Conv2d(2, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.conv, self.m = nn.Conv2d(6, 6, 3, padding=1), LIF(v_threshold=0.5)
        self.gamma = nn.Parameter(torch.linspace(-1.5, 1.5, 6).reshape(6, 1, 1))
        self.beta = nn.Parameter(torch.linspace(-0.2, 0.4, 6).reshape(1, 6, 1, 1))
        self.fc, self.k, self.head = nn.Linear(6, 12), LIF(v_threshold=0.5), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n((self.stem(x) + 0.25).expand(STEPS, -1, -1, -1, -1))
        z = self.conv(y.flatten(0, 1)) * self.gamma - self.beta
        y = self.m(F.max_pool2d(z, 2).unflatten(0, y.shape[:2]))
        out: Tensor = self.head(self.k(1.0 - self.fc(y.mean((3, 4))))).mean(0)
        return out


class Functional(nn.Module):
    """No layer is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(6, 2, 3, 3) / 4), nn.Parameter(torch.rand(6) / 8)
        self.w2 = nn.Parameter(torch.randn(8, 3, 3, 3) / 4)  # in two groups
        self.w3, self.w4 = nn.Parameter(torch.randn(12, 8) / 3), nn.Parameter(torch.randn(12, 4) / 3)
        self.n1, self.n2, self.n3 = leaky(), leaky(), leaky()

    def forward(self, x: Tensor) -> Tensor:
        forget(self)
        out = torch.zeros(len(x), 4)
        for _ in range(STEPS):
            s = self.n1(F.conv2d(x, self.w1, self.b1, padding=1))
            s = self.n2(torch.conv2d(s, self.w2.tanh(), stride=2, groups=2))
            s = self.n3(F.linear(s.mean((2, 3)), self.w3))
            out = out + s @ self.w4
        return out


IMAGES = drawn(24, 2, 6, 6)


@pytest.mark.parametrize("recipe", ["fast+w4m4", "w4m4", "paper+nearest+w4m2", "w8m8"])
def test_spikes_added_to_a_current(recipe: str, tmp_path: Path) -> None:
    x = drawn(48, 8) * 2
    net = seeded(Spiking)
    q = quantized(net, x, tmp_path, recipe, iterations=3)
    assert q.integers["shortcut"].weight.shape == (16, 1, 1)
    p, s = q.plan.projections["b"], q.plan.projections["shortcut"]
    octaves = torch.log2(torch.tensor(s.lattice) / torch.tensor(p.lattice))
    assert torch.allclose(octaves, octaves[0].round())  # both count the same steps, whole octaves apart
    one = q.integers["shortcut"].weight.flatten() * torch.tensor(s.scales)
    assert float((one - 1).abs().max()) < 0.01  # a spike stays one


def test_a_channel_without_weights_leaves_the_shortcut_to_the_others(tmp_path: Path) -> None:
    """Its steps are thousands of times finer; in steps that hold a spike there, others would lose theirs."""
    net = seeded(Spiking)
    net.get_parameter("b.weight").data[3] *= 1e-6
    q = quantized(net, drawn(48, 8) * 2, tmp_path, "fast+w4m4")
    one = q.integers["shortcut"].weight.flatten() * torch.tensor(q.plan.projections["shortcut"].scales)
    assert float((one - 1).abs().max()) < 0.05


def test_at_8_bits_the_shortcut_costs_nothing(tmp_path: Path) -> None:
    x = drawn(96, 8) * 2
    net = seeded(Spiking)
    assert agreement(net, quantized(net, x, tmp_path, "fast+w8m8"), x) > 0.9


def test_one_place_that_serves_two_layers(tmp_path: Path) -> None:
    q = quantized(seeded(ByLayer), drawn(24, 8) * 2, tmp_path)
    assert [(e.turn, e.period, e.shape) for e in q.plan.edits] == [(0, 2, (16,)), (1, 2, (12,))]
    assert q.plan.neurons["neurons.0"].kind == q.plan.neurons["neurons.1"].kind == "pair"


def test_blocks_of_whole_sequences(tmp_path: Path) -> None:
    q = quantized(seeded(Blocks), IMAGES, tmp_path)
    assert {"blocks.0.shortcut", "blocks.1.shortcut"} <= set(q.plan.projections)


def test_scales_and_constants_for_each_channel(tmp_path: Path) -> None:
    net = seeded(Scaled)
    q = quantized(net, IMAGES, tmp_path, "fast+w8m8")
    assert set(q.plan.projections) == {"stem", "conv", "fc", "head"} and len(q.plan.edits) == 4
    assert agreement(net, q, IMAGES) > 0.8


class Negative(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        y = self.n(self.stem(x).expand(STEPS, -1, -1, -1, -1))
        z = F.max_pool2d(self.conv(y.flatten(0, 1)), 2) * self.gamma + self.beta
        y = self.m(z.unflatten(0, y.shape[:2]))
        out: Tensor = self.head(self.k(self.fc(y.mean((3, 4))))).mean(0)
        return out


def test_negative_scales_behind_a_max_pool() -> None:
    with pytest.raises(UnsupportedOperation, match="behind a max-pool has negative gains"):
        ptq4snn.quantize(seeded(Negative), IMAGES, "fast+w4m4")


class Drifting(Spiking):
    def forward(self, x: Tensor) -> Tensor:
        forget(self)
        out = torch.zeros(len(x), 3)
        for t in range(STEPS):
            s = self.n(self.a(x))
            out = out + self.c(self.m(self.b(s) + torch.full((16,), 0.1 * t + 0.1)))
        return out


def test_a_constant_that_changes_from_step_to_step_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="changes from call to call"):
        ptq4snn.quantize(seeded(Drifting), drawn(24, 8), "fast+w4m4")


def test_functional_layers(tmp_path: Path) -> None:
    net = seeded(Functional)
    q = quantized(net, IMAGES, tmp_path, "fast+w8m8")
    assert [e.child for e in q.plan.edits] == ["plain", "plain1", "plain2", "plain3"]
    assert {p.bits for p in q.plan.projections.values()} == {8}
    assert agreement(net, q, IMAGES) > 0.8
    with pytest.raises(BundleError, match="made from another model"):
        ptq4snn.load(tmp_path / "q.ptq", seeded(Spiking))


def test_inspect_leaves_the_model_alone() -> None:
    net = seeded(Functional)
    names, kind = [n for n, _ in net.named_modules()], type(net)
    found = ptq4snn.inspect(net, IMAGES)
    assert list(found.projections) == ["plain", "plain1", "plain2", "plain3"]
    assert [n for n, _ in net.named_modules()] == names and type(net) is kind

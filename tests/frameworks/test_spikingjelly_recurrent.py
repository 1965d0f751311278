"""SpikingJelly's CUBALIFNode and recurrent containers, spike for spike in float64, and whole networks.

Runs with whichever generation is importable; test_spikingjelly_generations.py runs it with each.
"""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import pytest
import torch
from oracles.frameworks import currents, runs_everywhere, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks import compound_of

pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")

from spikingjelly.activation_based import functional, layer, neuron

STEPS = 8
CUBA = hasattr(neuron, "CUBALIFNode")
only_second = pytest.mark.skipif(not CUBA, reason="CUBALIFNode came with SpikingJelly 2")


def made(module: nn.Module) -> nn.Module:
    found = compound_of(copy.deepcopy(module), "n")
    assert found is not None
    return found.double().eval()


def same(module: nn.Module, found: nn.Module, x: Tensor, mode: str) -> None:
    """Over two sequences of one state, and one behind a reset."""
    with torch.no_grad():
        for again in range(3):
            if again == 2:
                functional.reset_net(module)
                functional.reset_net(found)
            expected, y = ([m(x)] if mode == "m" else [m(x_t) for x_t in x] for m in (module, found))
            assert all(map(torch.equal, y, expected))
            assert 0.02 < float(torch.cat(y).mean()) < 0.98


@only_second
@pytest.mark.parametrize("mode", ["s", "m"])
@pytest.mark.parametrize("v_reset", [0.0, None])
def test_cuba(mode: str, v_reset: float | None) -> None:
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        c, v, theta = (float(u) for u in torch.rand(3, generator=g))
        node = neuron.CUBALIFNode(c_decay=c, v_decay=v, v_threshold=0.2 + theta, v_reset=v_reset)
        node.step_mode = mode
        found = made(node)
        same(node, found, currents((STEPS * 4, 5, 7), seed, 0.8), mode)
        torch.testing.assert_close(found.v, node.v)
        torch.testing.assert_close(found.c, node.c)


@pytest.mark.parametrize("mode", ["s", "m"])
@pytest.mark.parametrize("inside", ["node", "linear"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_container(mode: str, inside: str, bias: bool) -> None:
    def build() -> nn.Module:
        node = neuron.LIFNode(tau=2.0, v_threshold=0.3)
        sub = node if inside == "node" else nn.Sequential(nn.Linear(7, 5), node)
        return layer.LinearRecurrentContainer(sub, 7, 7 if inside == "node" else 5, bias, step_mode=mode)

    container = seeded(1, build).double()
    same(container, made(container), currents((STEPS * 4, 6, 7), 3, 1.5), mode)


@pytest.mark.parametrize("mode", ["s", "m"])
def test_element_wise_container(mode: str) -> None:
    node = neuron.IFNode(v_threshold=1.2, v_reset=None)
    container = layer.ElementWiseRecurrentContainer(node, lambda y, x: x + y, step_mode=mode).double()
    same(container, made(container), currents((STEPS * 4, 6, 7), 3, 0.6), mode)


def test_a_function_that_does_not_add_is_refused() -> None:
    node = neuron.IFNode()
    net = nn.Sequential(nn.Linear(7, 7), layer.ElementWiseRecurrentContainer(node, lambda y, x: x * (1 - y)))
    with pytest.raises(UnsupportedNeuron, match=r"^1: Element.*is not an addition; use one that adds"):
        ptq4snn.inspect(net, torch.rand(4, 7))


@only_second
def test_a_rest_that_is_not_zero_is_refused() -> None:
    net = nn.Sequential(nn.Linear(7, 7), neuron.CUBALIFNode(v_reset=-0.5))
    with pytest.raises(
        UnsupportedNeuron, match=r"^1: CUBALIFNode.*reset to -0.5 and decays to 0; use v_reset"
    ):
        ptq4snn.inspect(net, torch.rand(4, 7))


class Net(nn.Module):
    """Multi-step on [T, B, N]."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind == "linear":
            sub = nn.Sequential(nn.Linear(12, 20), neuron.LIFNode(v_threshold=0.4))
            self.first = layer.LinearRecurrentContainer(sub, 12, 20, step_mode="m")
        elif kind == "element-wise":
            add = layer.ElementWiseRecurrentContainer(neuron.LIFNode(), torch.add, step_mode="m")
            self.first = nn.Sequential(nn.Linear(12, 20), add)
        else:
            node = neuron.CUBALIFNode(v_reset=None)
            node.step_mode = "m"
            self.first = nn.Sequential(nn.Linear(12, 20), node)
        self.second = nn.Sequential(nn.Linear(20, 16), neuron.LIFNode(v_threshold=0.5))
        self.third = nn.Sequential(nn.Linear(16, 5), neuron.IFNode(v_threshold=0.5))
        functional.set_step_mode(self.second, "m")
        functional.set_step_mode(self.third, "m")

    def forward(self, x: Tensor) -> Tensor:
        functional.reset_net(self)
        return self.third(self.second(self.first(x))).mean(0)


@pytest.mark.parametrize("recipe", ["w4m4", "w8m8"])
@pytest.mark.parametrize("kind", ["linear", "element-wise", pytest.param("cuba", marks=only_second)])
def test_whole_networks(kind: str, recipe: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = seeded(2, Net, kind).eval()
    for m in net.modules():
        if isinstance(m, nn.Linear):
            m.weight.data *= 2
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(STEPS, 24, 12, generator=g) < 0.4).float()
    with caplog.at_level(logging.WARNING):
        q = runs_everywhere(net, x, tmp_path, recipe, batch_axis=1)
    assert not caplog.records  # reset_net knows all that it resets
    if recipe == "w8m8":
        expected, found = net(x).detach(), q(x)
        assert float((expected - found).abs().mean()) < 0.1 * float(expected.abs().max())

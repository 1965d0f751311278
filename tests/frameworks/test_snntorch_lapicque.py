"""snnTorch's Lapicque: an RC circuit is the canonical neuron, spike for spike in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.frameworks import currents, replaced, runs_everywhere, seeded
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import UnsupportedNeuron

snn = pytest.importorskip("snntorch", reason="snnTorch is not installed: `make test` installs it")
from snntorch import utils  # noqa: E402

STEPS = 9
CIRCUITS: dict[str, dict[str, Any]] = {
    "beta": {"beta": 0.8},
    "whole numbers": {"R": 5, "C": 1},
    "R and C": {"R": 1.7, "C": 2.9, "time_step": 0.5},
    "beta and R": {"beta": 0.6, "R": 2.5},
    "beta and C": {"beta": 0.9, "C": 3.0},
    "learned": {"beta": torch.tensor(0.7), "learn_beta": True},
}


@pytest.mark.parametrize("name", CIRCUITS)
@pytest.mark.parametrize("reset", ["subtract", "zero", "none"])
@pytest.mark.parametrize("hidden", [True, False])
def test_a_circuit_is_its_canonical_form(name: str, reset: str, hidden: bool) -> None:
    module = snn.Lapicque(**CIRCUITS[name], reset_mechanism=reset, threshold=0.7, init_hidden=hidden).double()
    found, x = replaced(module), currents((60, 5, 7), 1, 2.0)
    fired = 0.0
    with torch.no_grad():
        mem, mine = module.reset_mem(), found.reset_mem()
        for t, x_t in enumerate(x):
            if hidden:
                spikes, y = module(x_t), found(x_t)
            else:
                spikes, mem = module(x_t, mem)
                y, mine = found(x_t, mine.clone() if t % 7 == 3 else mine)  # also through other hands
                torch.testing.assert_close(mine, mem)
            assert torch.equal(y, spikes.double())
            fired += float(spikes.mean()) / len(x)
    assert 0.02 < fired < 0.98


class Net(nn.Module):
    def __init__(self, reset: str) -> None:
        super().__init__()
        more: dict[str, Any] = {"reset_mechanism": reset, "init_hidden": True}
        self.a, self.one = nn.Linear(12, 20), snn.Lapicque(beta=0.8, threshold=0.4, **more)
        self.b, self.two = nn.Linear(20, 16), snn.Lapicque(R=2.0, C=2.0, threshold=0.2, **more)
        self.c, self.three = nn.Linear(16, 5), snn.Lapicque(beta=0.9, threshold=0.1, **more)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, N]
        utils.reset(self)
        return torch.stack([self.three(self.c(self.two(self.b(self.one(self.a(x_t)))))) for x_t in x]).sum(0)


@pytest.mark.parametrize("reset", ["subtract", "zero"])
def test_whole_networks(reset: str, tmp_path: Path) -> None:
    net = seeded(2, Net, reset).eval()
    for m in (net.a, net.b, net.c):
        m.weight.data *= 3
    x = (torch.rand(STEPS, 24, 12, generator=torch.Generator().manual_seed(0)) < 0.4).float()
    runs_everywhere(net, x, tmp_path, batch_axis=1)


def test_a_step_longer_than_the_circuit_is_refused() -> None:
    net = nn.Sequential(nn.Linear(7, 7), snn.Lapicque(R=0.5, C=0.5, init_hidden=True))
    with pytest.raises(UnsupportedNeuron, match=r"^1: Lapicque.*not below R C.*use a smaller time_step"):
        ptq4snn.inspect(net, torch.rand(4, 7))

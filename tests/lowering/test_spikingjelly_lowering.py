"""SpikingJelly models of the installed generation: sequences, folded time, single steps, voting."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "spikingjelly", reason="runs from test_spikingjelly_generations.py, one generation at a time"
)

import torch
from frameworks import sj_models
from lowering.small import quantized
from oracles.simulation import check_same
from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

from ptq4snn.network.program import Neuron


@pytest.mark.parametrize("name", sj_models.all_nets())
def test_model(name: str) -> None:
    q = quantized(sj_models.all_nets()[name](), sj_models.inputs(8))
    assert q.program is not None, q.not_lowered
    trace = check_same(q, q.program, sj_models.inputs(3, 1))
    assert all(s.mean() > 0.02 for s in trace.spikes.values())
    assert sum(isinstance(o, Neuron) for o in q.program.operations) == len(q.plan.neurons)


class Events(nn.Module):
    """The usual network of event data: [B, T, 2, 12, 12] to votes [B, 5], in one call or step by step."""

    def __init__(self, loop: bool) -> None:
        super().__init__()
        self.loop = loop
        self.net = nn.Sequential(
            *self.block(2, 6), *self.block(6, 6),
            layer.Flatten(), layer.Dropout(0.5), layer.Linear(54, 50), self.node(), layer.VotingLayer(10),
        )  # fmt: skip
        functional.set_step_mode(self, "s" if loop else "m")

    def block(self, cin: int, cout: int) -> list[nn.Module]:
        conv = layer.Conv2d(cin, cout, 3, padding=1, bias=False)
        return [conv, layer.BatchNorm2d(cout), self.node(), layer.MaxPool2d(2)]

    def node(self) -> Any:
        return neuron.LIFNode(tau=2.0, v_threshold=0.4, detach_reset=True)

    def forward(self, x: Tensor) -> Tensor:
        functional.reset_net(self)
        x = x.transpose(0, 1)
        if not self.loop:
            return self.net(x).mean(0)
        votes: Any = 0.0
        for frame in x:
            votes = votes + self.net(frame)
        return votes / len(x)


@pytest.mark.parametrize("loop", [False, True])
def test_votes_are_counted_before_they_are_divided(loop: bool) -> None:
    """Tenths, summed over time by torch in an order of its own: the result is that of the integers."""
    g = torch.Generator().manual_seed(0)
    model = sj_models.seeded(lambda: Events(loop), 0)
    q = quantized(model, torch.poisson(torch.full((8, 6, 2, 12, 12), 0.4), generator=g))
    assert q.program is not None, q.not_lowered
    assert q.program.outputs[0].scalings == (("div", 10.0), ("steps",))
    for n, steps in ((3, 6), (2, 9)):
        check_same(q, q.program, torch.poisson(torch.full((n, steps, 2, 12, 12), 0.4), generator=g))

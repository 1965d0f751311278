"""snnTorch models: loops over time in Python, states handed round, membranes as outputs."""

from __future__ import annotations

import pytest

pytest.importorskip("snntorch")

import snntorch as snn
import torch
from frameworks import snn_models
from lowering.small import quantized
from oracles.simulation import check_same
from torch import Tensor, nn

from ptq4snn.network.program import Neuron

NETS = ("FullyConnected", "Convolutional", "Recording", "Readout")


@pytest.mark.parametrize("name", NETS)
def test_loop(name: str) -> None:
    model = snn_models.seeded(getattr(snn_models, name), 0)
    q = quantized(model, snn_models.inputs(8))
    assert q.program is not None, q.not_lowered
    trace = check_same(q, q.program, snn_models.inputs(3, 1))
    assert all(s.mean() > 0.02 for s in trace.spikes.values())
    neurons = [o for o in q.program.operations if isinstance(o, Neuron)]
    assert len(neurons) == len(q.plan.neurons)  # one each, though it was called at every step
    read = {o.name for o in q.program.outputs if o.kind == "potential"}
    assert {o.name for o in neurons if o.potential is not None} == read


class Kept(nn.Module):
    """Returns the membrane after the reset."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(144, 6)
        self.lif = snn.Leaky(beta=0.9, threshold=0.4, reset_delay=False)

    def forward(self, x: Tensor) -> Tensor:
        mem = self.lif.init_leaky()
        rows = []
        for _ in range(4):
            _, mem = self.lif(self.fc(x.flatten(1)), mem)
            rows.append(mem)
        return torch.stack(rows)


def test_a_membrane_behind_the_reset_is_refused() -> None:
    q = quantized(snn_models.seeded(Kept, 0), snn_models.inputs(8))
    assert q.program is None
    assert q.not_lowered.startswith("the neuron 'lif' returns its state behind the reset")

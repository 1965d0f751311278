"""snnTorch models through the whole pipeline: explicit state, hidden state, membrane readout."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from oracles.numbers import known

import ptq4snn

snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed: `make test` installs it")

spec = importlib.util.spec_from_file_location("snn_models", Path(__file__).with_name("snn_models.py"))
assert spec is not None and spec.loader is not None
snn_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(snn_models)


@pytest.fixture(params=sorted(snn_models.ALL))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def quantized(name: str, recipe: str = "w8m8") -> ptq4snn.QuantizedModel:
    return ptq4snn.quantize(snn_models.ALL[name](), snn_models.inputs(64), recipe, allocation="uniform")


def leaves(x: object) -> list[torch.Tensor]:
    return list(x) if isinstance(x, tuple) else [x]  # type: ignore[list-item]


def test_spikes_hardly_change_at_eight_bits(name: str) -> None:
    q = quantized(name)
    assert (
        0 < known(q.report["summary"]["flip_rate"]) < 0.02
    )  # a network of two layers: all its states have 8 bits
    assert {n.steps for n in q.plan.neurons.values()} == {snn_models.STEPS}


def test_every_call_of_the_loop_is_one_neuron(name: str) -> None:
    found = ptq4snn.inspect(snn_models.ALL[name](), snn_models.inputs(4))
    assert all(n.kind == "pair" and len(n.projections) == 1 for n in found.neurons.values())


def test_repeatable_and_saved(name: str, tmp_path: Path) -> None:
    q, x = quantized(name, "w4m4"), snn_models.inputs(8, seed=3)
    first, second = leaves(q(x)), leaves(q(x))
    assert all(map(torch.equal, first, second))
    q.save(tmp_path / "net.ptq")
    again = ptq4snn.load(tmp_path / "net.ptq", snn_models.ALL[name]())
    assert all(map(torch.equal, first, leaves(again(x))))


def test_membrane_readout_is_in_the_users_units() -> None:
    q = quantized("readout")
    model, x = snn_models.readout_net(), snn_models.inputs(32, seed=1)
    expected, found = model(x).detach(), q(x)
    assert q.plan.neurons["readout"].readout and set(q.plan.neurons["readout"].bits) == {16}
    assert float((expected - found).abs().mean()) < 0.02 * float(expected.abs().max())


def test_state_passed_through_other_hands_is_recovered() -> None:
    """A loop that clones the membrane between calls gives the same bits as one that hands the tensor back."""
    import snntorch as snn
    from torch import Tensor, nn

    class Net(nn.Module):
        def __init__(self, clone: bool) -> None:
            super().__init__()
            self.clone = clone
            self.fc, self.lif, self.out = nn.Linear(16, 24), snn.Leaky(beta=0.9), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            mem = self.lif.reset_mem()
            total: Tensor | int = 0
            for _ in range(6):
                spikes, mem = self.lif(self.fc(x), mem)
                mem = mem.clone() if self.clone else mem
                total = total + self.out(spikes)
            assert isinstance(total, Tensor)
            return total

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one, two = Net(False), Net(True)
        x = 3 * torch.rand(64, 16)
    two.load_state_dict(one.state_dict())
    outputs = [ptq4snn.quantize(n, x, "paper+nearest+uniform+w4m4")(x) for n in (one, two)]
    assert torch.equal(*outputs)

"""Networks without a middle: the bits that were asked for, and words that say which state has which width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from oracles.numbers import known
from torch import Tensor, nn

import ptq4snn
import ptq4snn.runtime
from ptq4snn.models.neuron import LIF

snn = pytest.importorskip("snntorch")

STEPS = 8
X = torch.rand(96, 20, generator=torch.Generator().manual_seed(0))


class Tutorial(nn.Module):
    """snnTorch's tutorial 5: two layers; returns spikes and membranes, or one of them."""

    def __init__(self, returns: str = "both") -> None:
        super().__init__()
        self.returns = returns
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.fc1, self.fc2 = nn.Linear(20, 30), nn.Linear(30, 5)
        for p in self.parameters():
            p.data *= 2
        self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)

    def forward(self, x: Tensor) -> Any:
        m1, m2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes, membranes = [], []
        for _ in range(STEPS):
            s1, m1 = self.lif1(self.fc1(x), m1)
            s2, m2 = self.lif2(self.fc2(s1), m2)
            spikes.append(s2)
            membranes.append(m2)
        found = {"spikes": torch.stack(spikes), "membranes": torch.stack(membranes)}
        return tuple(found.values()) if self.returns == "both" else found[self.returns]


class One(nn.Module):
    """A single neuron, the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(20, 30), LIF(), nn.Linear(30, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.n(3 * self.a(x).expand(STEPS, -1, -1))).mean(0)
        return out


def bits(q: Any) -> dict[str, set[int]]:
    return {name: set(n.bits) for name, n in q.plan.neurons.items()}


@pytest.mark.parametrize("recipe", ["fast+w4m4", "fast+uniform+squared_error+w4m3", "paper+nearest+w4m4"])
def test_two_layers_get_the_bits_that_were_asked_for(recipe: str, tmp_path: Path) -> None:
    q = ptq4snn.quantize(Tutorial(), X, recipe, holdout=32, sensitivity_batches=1)
    asked = 3 if "m3" in recipe else 4
    assert all(n.in_budget for n in q.plan.neurons.values())
    assert q.plan.average_bits() == pytest.approx(asked, abs=0.1)
    assert q.report["summary"]["average_bits_all"] == q.plan.average_bits()
    if "paper" not in recipe:
        assert bits(q) == {"lif1": {asked}, "lif2": {asked}}
    q.save(tmp_path / "m.ptq", page=True)
    found = ptq4snn.runtime.load(tmp_path / "m.ptq")(X[:8].numpy())
    for mine, theirs in zip(q(X[:8]), found, strict=True):
        assert (mine.numpy() == theirs).all()
    page = (tmp_path / "m.ptq.report.html").read_text(encoding="utf-8")
    for text in (q.summary(), page):
        assert "as asked, no layer between first and last: lif1, lif2" in text
        assert "also where the model returns the membrane: lif2" in text


def test_a_narrow_first_state_has_the_range_that_it_needs() -> None:
    """It counts in steps of 8-bit inputs times 8-bit weights: with k <= 15 it never reached its threshold."""
    q = ptq4snn.quantize(Tutorial(), X * 0.01, "fast+w4m4", overrides={"fc1": {"weights": 8}})
    assert max(k for k in q.plan.neurons["lif1"].k if k is not None) > 15
    assert known(next(n["saturation"] for n in q.report["neurons"] if n["name"] == "lif1")) < 20


def test_a_membrane_that_is_the_output_keeps_16_bits() -> None:
    q = ptq4snn.quantize(Tutorial("membranes"), X, "fast+w4m4")
    assert bits(q) == {"lif1": {4}, "lif2": {16}} and q.plan.average_bits() == 4.0
    assert "16 bits (its membrane is the output): lif2" in q.summary()


def test_a_last_layer_that_only_spikes_is_in_the_budget_and_the_first_is_not() -> None:
    q = ptq4snn.quantize(Tutorial("spikes"), X, "fast+w4m4")
    assert bits(q) == {"lif1": {16}, "lif2": {4}} and q.plan.average_bits() == 4.0
    assert "16 bits (first layer): lif1" in q.summary()


def test_a_single_neuron() -> None:
    q = ptq4snn.quantize(One(), X, "fast+w4m4")
    assert bits(q) == {"n": {4}} and q.plan.average_bits() == 4.0


def test_32_bits_are_asked_for_too() -> None:
    for net, names in ((One(), ("n",)), (Tutorial(), ("lif1", "lif2"))):
        q = ptq4snn.quantize(net, X, "fast+w4m32")
        assert bits(q) == {name: {32} for name in names} and "32 bits as asked" in q.summary()


def test_what_is_set_is_kept() -> None:
    q = ptq4snn.quantize(Tutorial(), X, "fast+w4m4", first_membrane=8)
    assert bits(q) == {"lif1": {8}, "lif2": {4}} and "8 bits (first layer): lif1" in q.summary()
    q = ptq4snn.quantize(Tutorial(), X, "fast+w4m4", overrides={"lif1": {"membrane": 16}})
    assert bits(q) == {"lif1": {16}, "lif2": {4}} and "16 bits (an override): lif1" in q.summary()


def test_average_bits_without_a_budget_are_those_of_all_states() -> None:
    with pytest.warns(UserWarning, match="no state is inside the budget"):
        q = ptq4snn.quantize(One(), X, "fast+w4m4", overrides={"n": {"membrane": 8}})
    assert q.plan.average_bits() == 8.0


def test_the_summary_says_what_the_states_bytes_are() -> None:
    """Channels of one element: a byte of zero point for every 4-bit state is more than the states."""
    q = ptq4snn.quantize(Tutorial(), X, "w4m4", zero_point="channel", objective="replay")
    found = q.report["summary"]["state_bytes"]
    assert 2 * found["metadata"] > found["packed"] and "are zero points, tags and shifts" in q.summary()
    q = ptq4snn.quantize(Tutorial(), X, "fast+w4m4", zero_point="none", objective="squared_error")
    assert "are zero points, tags and shifts" not in q.summary()

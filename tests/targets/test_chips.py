"""Every target, met and broken, and its advice followed: quantized by the recipe advised, it fits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from targets.nets import Dense, Rich, bundle
from torch import nn

from ptq4snn.models.neuron import IF, LIF
from ptq4snn.recipe import Recipe
from ptq4snn.targets.chips import CHIPS
from ptq4snn.targets.target import Target
from ptq4snn.targets.verdict import Verdict, check

Neuron = Callable[[], nn.Module]
SOFT: Neuron = partial(LIF, tau=2.3, v_reset=None)
HARD: Neuron = partial(LIF, tau=2.3)
FIRING: Neuron = partial(IF, v_reset=None)


def broken(v: Verdict) -> set[tuple[str, str]]:
    return {(f.constraint, f.place) for f in v.broken}


def followed(tmp_path: Path, net: nn.Module, target: str | Target, advice: Verdict) -> Verdict:
    """The network by the recipe that was advised, as a user pastes it."""
    assert advice.recipe is not None
    file = tmp_path / "advised.toml"
    file.write_text(advice.recipe)
    return check(bundle(tmp_path / "again.ptq", net, Recipe.from_toml(file)), target)


EACH = ["n1", "n2", "n3"]
BY_RECIPE = {  # target, neuron, what is broken at first
    "xylo": (SOFT, {("leak", n) for n in EACH}),
    "xylo-audio3": (SOFT, {("leak", n) for n in EACH}),
    "speck": (FIRING, {("one_scale", p) for p in "abc"}),
    "loihi2": (HARD, {("leak", n) for n in EACH}),
    "spiker+": (HARD, {("state_bits", "n1")}),
}


@pytest.mark.parametrize("target", BY_RECIPE)
def test_the_advised_recipe_fits(tmp_path: Path, target: str) -> None:
    neuron, expected = BY_RECIPE[target]
    net = Dense(neuron)
    first = check(bundle(tmp_path / "m.ptq", net), target)
    assert not first.fits and broken(first) == expected and not first.beyond
    again = followed(tmp_path, net, target, first)
    assert again.fits and again.recipe is None and not again.beyond
    assert len(again.findings) == len(first.findings)


@pytest.mark.parametrize("target", ["hls4ml", "spinnaker2"])
def test_targets_without_widths(tmp_path: Path, target: str) -> None:
    assert check(bundle(tmp_path / "m.ptq", Dense(HARD, head=True)), target).fits


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("rich") / "rich.ptq", Rich(), "fast+w4m4", 2, 6, 6)


@pytest.mark.parametrize("target", CHIPS)
def test_what_no_recipe_mends_is_said(rich: Path, target: str) -> None:
    """Convolutions, maxima, shortcuts and attention, each by its place."""
    found = check(rich, target)
    lacking = CHIPS[target]
    texts = {f.text for f in found.broken}
    assert found.fits == (target == "loihi2")  # nothing of the kind is known of it
    assert any("a maximum" in t for t in texts) == ("max-pool" in lacking.without)
    assert any("products of activities" in t for t in texts) == ("attention" in lacking.without)
    assert any("several branches" in t for t in texts) == ("residual" in lacking.without)
    dense = {p for c, p in broken(found) if c == "dense"}
    assert {"conv", "deep"} <= dense if lacking.dense else not dense
    assert bool(found.beyond) == (target != "loihi2")
    assert lacking.note and found.lines()[-1] == f"note: {lacking.note}"


def test_neurons_that_a_chip_has_not(tmp_path: Path) -> None:
    """Leaks where none may be, no leak where one must be, the other reset, logits instead of spikes."""
    hard = bundle(tmp_path / "hard.ptq", Dense(HARD, head=True))
    speck, xylo = check(hard, "Speck"), check(hard, "XYLO")
    assert {("leak", n) for n in EACH} < broken(speck) and ("spiking_output", "") in broken(speck)
    assert "'n1', 'n2', 'n3': train with neurons that do not leak" in speck.beyond
    assert {("resets", n) for n in EACH} < broken(xylo)
    assert "'n1', 'n2', 'n3': train with a reset that Xylo has" in xylo.beyond
    assert "end the network in a neuron, and count its spikes" in xylo.beyond
    firing = bundle(tmp_path / "firing.ptq", Dense(FIRING))
    found = check(firing, "xylo")
    assert found.recipe is None and found.beyond == ("'n1', 'n2', 'n3': train with a leak",)
    assert {("resets", n) for n in EACH} == broken(check(firing, "loihi-2"))


def test_recurrence_and_synapses(tmp_path: Path) -> None:
    snn = pytest.importorskip("snntorch")
    from torch import Tensor, stack

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(6, 8)
            self.n = snn.RSynaptic(alpha=0.8, beta=0.75, linear_features=8, init_hidden=True)
            self.b = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.n.reset_mem()
            return stack([self.b(self.n(self.a(x))) for _ in range(4)]).mean(0)

    path = bundle(tmp_path / "m.ptq", Net().eval())
    texts = [f.text for f in check(path, "hls4ml").broken]
    assert len(texts) == 2, texts
    assert any("come back a step later" in t for t in texts) and any("synaptic current" in t for t in texts)
    assert not any("several branches" in f.text for f in check(path, "xylo").broken)

"""Tuning in one pass gives what a pass for every neuron gives; networks that step get the latter."""

from __future__ import annotations

from typing import Any

import pytest
from tuning.small import Slow, samples

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.pipeline import Prepared, prepare
from ptq4snn.recipe import Recipe
from ptq4snn.tuning import one_pass
from ptq4snn.tuning.states import tune_states
from ptq4snn.tuning.tuning_traces import float_traces

RECIPE = Recipe(
    holdout=16, sensitivity_batches=2, rounding="nearest", allocation="uniform", objective="replay",
    sequential=True, membrane=2,
)  # fmt: skip


def tuned(prepared: Prepared) -> tuple[Plan, int]:
    """The plan, and how many forward passes of the whole network it took."""
    assembly = Assembly(Lattice.of(prepared.folded, prepared.seen, RECIPE), dict(float_traces(prepared)))
    bits = assembly.uniform_bits()
    model = QuantizedModel(prepared.model, assembly.plan(bits), assembly.integers())
    before = model.clock.passes
    plan = tune_states(prepared, assembly, model, bits)
    return plan, model.clock.passes - before


@pytest.mark.parametrize("which", ["convolutions", "linear"])
def test_one_pass_is_as_good_as_many(which: str, observed: Prepared, monkeypatch: Any) -> None:
    prepared = observed if which == "convolutions" else prepare(Slow(), samples(96), RECIPE)
    plan, passes = tuned(prepared)
    monkeypatch.setattr(one_pass, "_in_one_pass", lambda *_: None)
    expected, many = tuned(prepared)
    assert plan.neurons == expected.neurons
    neurons = sum(n.in_budget for n in plan.neurons.values())
    assert many == neurons * max(1, len(prepared.kept[:4]))
    assert passes == 1 < many


def test_traces_taken_while_observing_are_those_of_a_pass_of_their_own() -> None:
    prepared = prepare(Slow(), samples(96), RECIPE.replace(holdout=64))
    found = dict(prepared.cache.traces)
    assert found
    prepared.cache.traces.clear()
    for name, trace in float_traces(prepared).items():
        assert (trace.currents == found[name].currents).all()
        assert (trace.spikes == found[name].spikes).all() and (trace.places == found[name].places).all()

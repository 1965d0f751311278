"""An integer neuron that nobody watches runs in place: the bits of its steps one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import build, pixels

from ptq4snn.api import quantize
from ptq4snn.frameworks.core import NeuronCore
from ptq4snn.models.neuron import LIF
from ptq4snn.modules.integer import IntegerCore

NEURONS = {
    "hard": LIF,
    "soft": lambda: LIF(tau=20.0, decay_input=False, v_threshold=3.0, v_reset=None),
    "no leak": lambda: LIF(tau=1e9, decay_input=False, v_reset=None),
}


@pytest.mark.parametrize("recipe", ["fast+w4m4", "paper+nearest+w4m4"])
@pytest.mark.parametrize("neuron", NEURONS)
def test_the_same_bits_as_step_by_step(neuron: str, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q = quantize(build(neuron=NEURONS[neuron]), pixels(16), recipe, progress=False)
    g = torch.Generator().manual_seed(0)
    in_place = 0

    def noted(*args: Any) -> Any:
        steps.append(1)
        return IntegerCore.step(core, *args)

    for name, plan in q.plan.neurons.items():
        core = q.core(name)
        shape = (5, 2, *plan.layout.shape)
        x = torch.randint(-plan.bound // 2, plan.bound // 2 + 1, shape, generator=g).float() * plan.quantum
        given, steps = x.clone(), list[int]()
        monkeypatch.setattr(core, "step", noted)
        found = core.run(x, None)
        in_place += not steps
        expected = NeuronCore.run(core, x, None)
        assert len(steps) in (5, 10)
        for a, b in zip(found, expected, strict=True):
            assert a is not None and b is not None and torch.equal(a, b)
        assert torch.equal(x, given)
    assert in_place

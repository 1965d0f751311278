"""The recipe's `leak`: the integers leak by a power of two or 12 bits, the float model as it was trained."""

from __future__ import annotations

import warnings
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from targets.nets import Dense

import ptq4snn
from ptq4snn.errors import RecipeError
from ptq4snn.models.neuron import IF, LIF
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.numerics.fixed_point import leak_on_grid
from ptq4snn.recipe import Recipe

X = torch.rand(24, 6, generator=torch.Generator().manual_seed(1)) * 2


def quantized(net: torch.nn.Module, **changes: Any) -> QuantizedModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ptq4snn.quantize(net, X, "fast+w4m4", holdout=4, sensitivity_batches=1, **changes)


def leaks(q: QuantizedModel) -> set[Fraction]:
    return {Fraction(m, 2**n) for p in q.plan.neurons.values() for m, n in p.leak}


def test_grids() -> None:
    assert leak_on_grid(0.56, "exact") == 0.56
    assert [leak_on_grid(v, "power") for v in (0.0, 0.2, 0.56, 0.7, 0.99, 1.0)] == [
        0,
        0,
        0.5,
        0.75,
        127 / 128,
        1,
    ]
    assert leak_on_grid(1 - 2**-17, "power") == 1 - 2**-15
    assert leak_on_grid(0.56, "12-bit") == 2294 / 4096


@pytest.mark.parametrize(("grid", "expected"), [("power", Fraction(1, 2)), ("12-bit", Fraction(2315, 4096))])
def test_integers_leak_so_and_the_float_model_does_not(grid: str, expected: Fraction, tmp_path: Path) -> None:
    net = Dense(partial(LIF, tau=2.3))
    before = net(X)
    q, exact = quantized(net, leak=grid), quantized(net)
    assert leaks(q) == {expected} and leaks(exact) == {Fraction(round(2**15 * (1 - 1 / 2.3)), 2**15)}
    assert torch.equal(net(X), before)
    error = abs(float(expected) - (1 - 1 / 2.3))
    assert all(abs(n.leak_error - error) < 1e-12 for n in q.plan.neurons.values())
    q.save(tmp_path / "m.ptq")
    assert torch.equal(torch.from_numpy(ptq4snn.runtime.load(tmp_path / "m.ptq")(X.numpy())), q(X))


def test_what_is_on_the_grid_gives_the_same_bits() -> None:
    """tau 2 is a leak of 1/2, and a neuron without a leak stays one."""
    for neuron in (partial(LIF, tau=2.0), IF):
        one, two = quantized(Dense(neuron), leak="power"), quantized(Dense(neuron))
        assert one.plan.neurons == two.plan.neurons and torch.equal(one(X), two(X))


def test_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RecipeError, match="leak must be one of exact, power, 12-bit, not 'powr'; did you mean"
    ):
        Recipe(leak="powr")
    monkeypatch.setattr(LIF, "leak", 1.25)
    with pytest.raises(RecipeError, match=r"the leak of 'n1' is 1\.25, and no 1 - 2\^-n is"):
        quantized(Dense(LIF), leak="power")

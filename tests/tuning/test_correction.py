"""Corrected biases against means taken with hooks of a network built apart; thresholds against the replay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from tuning.small import Slow, samples

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.replay import replay_cost
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.numerics.grid import signed_range
from ptq4snn.observation.traces import Trace
from ptq4snn.pipeline import Prepared, prepare, rounded, run
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.correction import MOVES, corrected_biases, corrected_threshold
from ptq4snn.tuning.tuning_traces import float_traces

RECIPE = Recipe(
    weights=3, holdout=16, sensitivity_batches=2, rounding="nearest", allocation="uniform",
    objective="replay", sequential=False, zero_point="none", correction="none",
)  # fmt: skip


def means(model: nn.Module, names: list[str], batches: Sequence[Tensor]) -> dict[str, Tensor]:
    """Mean output [C] of projections, over everything but the channels."""
    outs: dict[str, list[Tensor]] = {n: [] for n in names}

    def keep(name: str) -> Any:
        def hook(m: nn.Module, _a: Any, out: Tensor) -> None:
            axis = 1 if isinstance(m, nn.Conv2d) else -1
            outs[name].append(out.double().transpose(0, axis).flatten(1))

        return hook

    handles = [model.get_submodule(n).register_forward_hook(keep(n)) for n in names]
    with torch.no_grad():
        for x in batches:
            model(x)
    for h in handles:
        h.remove()
    return {n: torch.cat(o, 1).mean(1) for n, o in outs.items()}


def with_weights(prepared: Prepared, lattice: Lattice, biases: dict[str, Tensor] | None) -> nn.Module:
    """The folded model with the real values of the weight integers, and with biases if there are any."""
    model: nn.Module = copy.deepcopy(prepared.folded.model)
    for name, p in lattice.projections.items():
        module: Any = model.get_submodule(name)
        dims = [1] * (module.weight.dim() - 1)
        values = p.weight.integers * p.weight.scales.view(-1, *dims)
        if p.input is not None:
            s = torch.tensor(p.input.scales, dtype=torch.float64)
            values = values / s.view(1, -1, *dims[1:])
        bias = p.bias if biases is None else biases[name]
        module.weight = nn.Parameter(values.float(), requires_grad=False)
        module.bias = nn.Parameter(bias.float(), requires_grad=False)
    return model


@pytest.fixture(scope="module")
def slow() -> Prepared:
    return prepare(Slow(), samples(96), RECIPE)


@pytest.mark.parametrize("which", ["convolutions", "linear"])
def test_every_projection_gets_its_mean_output_back(which: str, observed: Prepared, slow: Prepared) -> None:
    prepared = observed if which == "convolutions" else slow
    lattice = Lattice.of(prepared.folded, prepared.seen, RECIPE)
    names = list(lattice.projections)
    wanted = means(prepared.folded.model, names, prepared.kept)
    before = means(with_weights(prepared, lattice, None), names, prepared.kept)
    biases = corrected_biases(prepared, lattice)
    after = means(with_weights(prepared, lattice, biases), names, prepared.kept)
    moved = 0.0
    for name in names:
        # a spike that falls to the other side of its threshold by float rounding moves a mean by very little
        assert torch.allclose(after[name], wanted[name], atol=2e-4), name
        moved = max(moved, float((before[name] - wanted[name]).abs().max()))
    assert moved > 0.02


def test_biases_reach_the_integers(slow: Prepared) -> None:
    lattice = rounded(slow, Lattice.of(slow.folded, slow.seen, RECIPE.replace(correction="bias")))
    expected = corrected_biases(slow, Lattice.of(slow.folded, slow.seen, RECIPE))
    q = run(slow, RECIPE.replace(correction="bias"))
    for name, p in lattice.projections.items():
        assert torch.equal(p.bias, expected[name])
        assert torch.equal(q.integers[name].bias, (p.bias / p.unit).round())
    assert any(not torch.equal(p.bias, slow.folded.bias(n).double()) for n, p in lattice.projections.items())


def test_the_float_model_is_left_alone(slow: Prepared) -> None:
    before = copy.deepcopy(slow.folded.model.state_dict())
    corrected_biases(slow, Lattice.of(slow.folded, slow.seen, RECIPE))
    after = slow.folded.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(v, after[k]) for k, v in before.items())


# --- thresholds ----------------------------------------------------------------------------------


def assembled(prepared: Prepared, bits: int) -> tuple[Assembly, dict[str, NeuronPlan]]:
    recipe = RECIPE.replace(membrane=bits, zero_point="channel")
    lattice = Lattice.of(prepared.folded, prepared.seen, recipe)
    assembly = Assembly(lattice, dict(float_traces(prepared)))
    return assembly, assembly.plan(assembly.uniform_bits()).neurons


def cost_at(assembly: Assembly, plan: NeuronPlan, trace: Trace, theta: Tensor) -> Tensor:
    """[C], channel by channel, potentials measured in trained thresholds."""
    n = assembly.lattice.neurons[plan.name]
    d = assembly.dynamics(n, theta)
    out = []
    for c, (b, z) in enumerate(zip(plan.bits, plan.zero, strict=True)):
        one = replace(d, leak=d.leak[c : c + 1], theta=d.theta[c : c + 1], rho=d.rho[c : c + 1])
        part = Trace(trace.currents[:, c : c + 1], trace.spikes[:, c : c + 1], trace.places[c : c + 1])
        levels = tuple(torch.tensor(float(e + z)) for e in signed_range(b))
        trained = n.theta.float()[c : c + 1, None]
        out.append(replay_cost(one, part, torch.tensor(plan.scales[c : c + 1]), levels, trained))
    return torch.cat(out)


@pytest.mark.parametrize("bits", [2, 4])
def test_a_moved_threshold_costs_least(slow: Prepared, bits: int) -> None:
    assembly, plans = assembled(slow, bits)
    moved = 0
    for name in ("n2", "n3"):
        trace, theta = float_traces(slow)[name], assembly.lattice.neurons[name].theta
        found = corrected_threshold(assembly, plans[name], trace)
        factors = [1 + side * m / 100 for m in MOVES for side in (-1, 1)]
        costs = torch.stack([cost_at(assembly, plans[name], trace, theta * f) for f in factors])
        mine = cost_at(assembly, plans[name], trace, found)
        assert torch.allclose(mine, costs.amin(0), atol=1e-9)
        assert bool((mine <= costs[0]).all())
        assert float((found / theta - 1).abs().max()) <= 0.29 + 1e-9
        moved += int((mine < costs[0] - 1e-9).sum())
    assert moved > 0


def test_a_threshold_that_gains_nothing_stays(slow: Prepared) -> None:
    """Currents far from the threshold: rounding changes potentials, but no spike at any of the thresholds."""
    assembly, plans = assembled(slow, 2)
    theta = assembly.lattice.neurons["n2"].theta
    currents = torch.full((6, len(theta), 9), 0.013)
    currents[::2] += 0.11
    silent = Trace(currents, torch.zeros_like(currents, dtype=torch.bool), torch.zeros(len(theta), 9).long())
    assert torch.equal(corrected_threshold(assembly, plans["n2"], silent), theta)


def test_thresholds_reach_the_plan(slow: Prepared) -> None:
    plain = run(slow, RECIPE.replace(membrane=2)).plan.neurons
    moved = run(slow, RECIPE.replace(membrane=2, correction="threshold")).plan.neurons
    assert plain["n1"].theta == moved["n1"].theta  # the stem is outside the budget
    ratios = [b / a for n in ("n2", "n3") for a, b in zip(plain[n].theta, moved[n].theta, strict=True)]
    assert any(r != 1 for r in ratios) and all(0.7 < r < 1.3 for r in ratios)
    assert all(t == round(t) for n in moved.values() for t in n.theta)


def test_float_weights_have_no_mean_error(small_model: Callable[..., nn.Module], observed: Prepared) -> None:
    recipe = RECIPE.replace(weights=None)
    plain, corrected = run(observed, recipe), run(observed, recipe.replace(correction="bias"))
    for name, i in plain.integers.items():
        assert torch.equal(i.bias, corrected.integers[name].bias)

"""Tuning behind quantized neurons, against currents taken by hand and a search over every exponent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from tuning.small import Slow, samples

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.couplings import zero_points
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.replay import replay_cost
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.numerics.grid import signed_range
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.states import tune_states
from ptq4snn.tuning.tuning_traces import float_traces, trace_batches

RECIPE = Recipe(
    holdout=16, sensitivity_batches=2, rounding="nearest", allocation="uniform", objective="replay",
    sequential=True, zero_point="none", membrane=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def slow() -> Prepared:
    return prepare(Slow(), samples(96), RECIPE.replace(holdout=64))


def tuned(prepared: Prepared, recipe: Recipe) -> tuple[Assembly, QuantizedModel]:
    lattice = Lattice.of(prepared.folded, prepared.seen, recipe)
    assembly = Assembly(lattice, dict(float_traces(prepared)))
    bits = assembly.uniform_bits()
    model = QuantizedModel(prepared.model, assembly.plan(bits), assembly.integers())
    model.use(tune_states(prepared, assembly, model, bits))
    return assembly, model


def currents(model: QuantizedModel, name: str, batches: Sequence[Tensor]) -> Tensor:
    """What reaches a neuron [T, C, B * positions], in real numbers, from its integer input."""
    n = model.plan.neurons[name]
    unit = torch.tensor(n.unit, dtype=torch.float64)
    parts = []
    for x in batches:
        steps: list[Tensor] = []

        def note(x: Tensor, *_: Any, steps: list[Tensor] = steps) -> None:
            steps.append(x.double() / n.quantum * (1 if n.emits_units else 2.0**n.shift))

        model.core(name).probe = note
        with torch.no_grad():
            model(x)
        model.core(name).probe = None
        state = torch.stack(steps)  # [T, B, C, ...]
        assert n.layout.dims == (0,)
        parts.append(state.flatten(3) if state.dim() > 3 else state[..., None])
    y = torch.cat(parts, 1)
    return y * unit.view(-1, 1)


@pytest.mark.parametrize("which", ["convolutions", "linear"])
def test_a_neuron_is_tuned_behind_the_quantized_ones(which: str, observed: Prepared, slow: Prepared) -> None:
    """In execution order: what reached a neuron while it was tuned is what reaches it in the end."""
    prepared = observed if which == "convolutions" else slow
    assembly, model = tuned(prepared, RECIPE)
    batches, changed = trace_batches(prepared), 0
    for name in (n for n in assembly.lattice.neurons if assembly.in_budget(n)):
        trace, plain = assembly.traces[name], float_traces(prepared)[name]
        assert torch.equal(trace.spikes, plain.spikes) and torch.equal(trace.places, plain.places)
        here = currents(model, name, batches)
        C, P = here.shape[2:]
        per_sample = trace.places.shape[1] // here.shape[1]
        sample = torch.arange(here.shape[1]).repeat_interleave(per_sample)
        for c in range(C):
            expected = here[:, sample, c, trace.places[c] - c * P]
            assert torch.allclose(trace.currents[:, c].double(), expected, rtol=1e-6, atol=1e-7), name
        changed += not torch.allclose(trace.currents, plain.currents, atol=1e-3)
    assert changed > 0


@pytest.mark.parametrize("shifts", ["none", "channel"])
def test_the_exponent_is_the_best_on_those_currents(slow: Prepared, shifts: str) -> None:
    assembly, model = tuned(slow, RECIPE.replace(zero_point=shifts))
    differs = False
    first = run(slow, RECIPE.replace(zero_point=shifts, sequential=False)).plan
    for name in ("n2", "n3"):
        n, plan = assembly.lattice.neurons[name], model.plan.neurons[name]
        d, trace = assembly.dynamics(n), assembly.traces[name]
        best = torch.full((len(n.scale),), torch.inf, dtype=torch.float64)
        for k in assembly.exponents(n):
            step = n.scale * 2.0**k
            sane = ((step / n.theta).log2() <= 1) & ((step / n.theta).log2() >= -4)
            for z in zero_points(2) if shifts == "channel" else (0,):
                levels = tuple(torch.tensor(float(e + z)) for e in signed_range(2))
                cost = replay_cost(d, trace, step, levels).masked_fill(~sane, torch.inf)
                best = torch.minimum(best, cost)
        ends = [[e + z for e in signed_range(2)] for z in plan.zero]
        levels = tuple(torch.tensor([float(e[i]) for e in ends])[:, None] for i in (0, 1))
        mine = replay_cost(d, trace, torch.tensor(plan.scales, dtype=torch.float64), levels)
        assert torch.allclose(mine, best, atol=1e-9)
        differs |= plan.k != first.neurons[name].k
    assert differs  # other currents, other exponents


def test_the_same_plan_twice(slow: Prepared) -> None:
    recipe = RECIPE.replace(
        zero_point="channel", correction="threshold", allocation="benefit", widths=(2, 3, 4, 8)
    )
    first = run(slow, recipe).plan
    assert run(slow, recipe).plan == first
    again = prepare(Slow(), list(samples(96).split(7)), RECIPE.replace(holdout=64))
    assert run(again, recipe).plan == first


def flips(prepared: Prepared, q: QuantizedModel, x: Tensor) -> float:
    """Share of spikes of all neurons that differ from the float network's."""

    def spikes(model: Any, part: Any) -> list[Tensor]:
        out: list[Tensor] = []
        handles = [
            part.get_submodule(n).register_forward_hook(lambda _m, _a, s: out.append(s.bool()))
            for n in q.plan.neurons
        ]
        with torch.no_grad():
            model(x)
        for h in handles:
            h.remove()
        return out

    a, b = spikes(prepared.model, prepared.model), spikes(q, q.model)
    return sum(int((s ^ r).sum()) for s, r in zip(a, b, strict=True)) / sum(s.numel() for s in a)


def test_replay_keeps_what_squared_error_loses(slow: Prepared) -> None:
    """States run from -30 to 20 thresholds; only those near 1 matter."""
    x = samples(128, seed=9)
    with torch.no_grad():
        decided = slow.model(x).argmax(1)
    found = {}
    for name, recipe in {
        "wide": RECIPE.replace(coupling="none", sequential=False),
        "replay": RECIPE.replace(membrane=4, sequential=False),
        "sequential": RECIPE.replace(membrane=4),
        "squared": RECIPE.replace(membrane=4, objective="squared_error", sequential=False),
    }.items():
        q = run(slow, recipe)
        with torch.no_grad():
            agree = float((q(x).argmax(1) == decided).double().mean())
        found[name] = (flips(slow, q, x), agree, slow.divergence(q)[0])
    wide, squared = found["wide"], found["squared"]
    assert squared[0] > wide[0] + 0.02 and squared[1] < wide[1] - 0.05
    for name in ("replay", "sequential"):
        mine = found[name]
        assert mine[0] < wide[0] + 0.005 and mine[0] < squared[0] - 0.015
        assert mine[1] > squared[1] + 0.05 and mine[2] < squared[2] / 4

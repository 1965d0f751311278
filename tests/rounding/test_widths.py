"""Mixed widths of weights under a budget."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase

import pytest
import torch

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.pipeline import Prepared, run
from ptq4snn.recipe import Override, Recipe
from ptq4snn.rounding.gptq import Inverse, collect, searched, solve
from ptq4snn.rounding.moments import columns
from ptq4snn.rounding.network import Network
from ptq4snn.rounding.widths import _exactly, errors, with_weight_widths
from ptq4snn.words import WIDTHS

RECIPE = Recipe(weights=2.5, membrane=4, objective="squared_error", sequential=False, correction="none")


def chosen(prepared: Prepared, recipe: Recipe) -> dict[str, int]:
    found = with_weight_widths(prepared, recipe)
    return {n: found.override(n).weights or 0 for n in prepared.folded.discovery.projections}


@pytest.mark.parametrize("words", ["w2m4", "w4m4", "gptq+w3m4", "fast+w3m4", "one-width+w3m4", "paper+w3m4"])
def test_whole_bits_are_one_width(observed: Prepared, words: str) -> None:
    recipe = Recipe.parse(words)
    assert with_weight_widths(observed, recipe) is recipe


@pytest.mark.parametrize("words", ["w3m4", "mixed-widths+w3m4", "gptq+mixed-widths+w3m4"])
def test_three_bits_are_an_average(observed: Prepared, words: str) -> None:
    bits = {n: b for n, b in chosen(observed, Recipe.parse(words)).items() if b}
    size = {n: observed.folded.weight(n).numel() for n in bits}
    assert sum(bits[n] * size[n] for n in bits) <= 3 * sum(size.values()) and len(set(bits.values())) > 1


@pytest.mark.parametrize("budget", [2.25, 2.5, 3.5, 5.0])
def test_the_least_error_within_the_budget(observed: Prepared, budget: float) -> None:
    """Against every other choice of widths, where none that meets the budget has much less error."""
    recipe = RECIPE.replace(weights=budget)
    bits = {n: b for n, b in chosen(observed, recipe).items() if b}
    names = list(bits)
    size = {n: observed.folded.weight(n).numel() for n in names}
    room = budget * sum(size.values())
    assert sum(bits[n] * size[n] for n in names) <= room
    cost = errors(observed, recipe, names)

    def total(widths: tuple[int, ...]) -> float:
        return sum(float(cost[n][WIDTHS.index(b)]) for n, b in zip(names, widths, strict=True))

    every = [w for w in itertools.product(WIDTHS, repeat=len(names))
             if sum(b * size[n] for n, b in zip(names, w, strict=True)) <= room]  # fmt: skip
    best = min(map(total, every))
    worst = max(map(total, every))
    assert total(tuple(bits.values())) <= best + 0.25 * (worst - best)


def test_errors_are_those_of_the_outputs(observed: Prepared) -> None:
    """By the inputs themselves, not by their Hessian."""
    network = Network(observed, Lattice.of(observed.folded, observed.seen, RECIPE.replace(weights=3)))
    name = next(n for n in observed.folded.discovery.projections if chosen(observed, RECIPE)[n])
    module = observed.folded.projection(name)
    hessian = collect(network, (name,))[name]
    inverse, weight = Inverse.of(hessian.value()), observed.folded.weight(name)
    q = searched(weight, network.weight(name), inverse, network.floor(name))
    integers = solve(weight, q, inverse).integers
    values = integers.double() * q.scales.view(-1, *[1] * (weight.dim() - 1))
    seen: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _m, a: seen.append(columns(module, a[0])))
    with torch.no_grad():
        for x in observed.samples_again():
            observed.folded.model(x)
    handle.remove()
    x = torch.cat(seen, 2).double()  # [groups, K, n]
    rows = weight.double().reshape(len(x), -1, x.shape[1])
    lost = ((values.reshape(rows.shape) - rows) @ x).square().mean(2)
    share = (lost / (rows @ x).square().mean(2)).clamp(0, 1).sqrt().mean()
    found = errors(observed, RECIPE, [name])[name][WIDTHS.index(3)]
    assert float(found) == pytest.approx(float(share), rel=0.02)


def test_overrides_and_ends_keep_their_own(observed: Prepared) -> None:
    plain = {n: b for n, b in chosen(observed, RECIPE).items() if b}
    name = next(iter(plain))
    given = chosen(observed, RECIPE.replace(overrides={name: Override(weights=8)}))
    assert given[name] == 8
    first = next(n for n, p in observed.folded.discovery.projections.items() if p.reads == "data")
    assert first not in plain


def test_the_plan_has_the_widths(observed: Prepared) -> None:
    q = run(observed, RECIPE)
    expected = {n: b for n, b in chosen(observed, RECIPE).items() if b}
    assert expected and all(q.plan.projections[n].bits == b for n, b in expected.items())
    again = Recipe.from_dict(q.plan.recipe)
    assert with_weight_widths(observed, again) is again  # the plan's recipe says it all


@pytest.mark.parametrize("name", ["a.b", "a[0].b", "x?*", "]["])
def test_a_pattern_for_one_name(name: str) -> None:
    assert fnmatchcase(name, _exactly(name))
    assert not fnmatchcase(name + "x", _exactly(name))

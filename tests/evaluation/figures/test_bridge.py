"""Exponents and scales against a run of their own."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from ptq4snn.assemble import Assembly
from ptq4snn.evaluation.figure_sources import bridge_data
from ptq4snn.pipeline import run
from ptq4snn.recipe import Recipe
from ptq4snn.report.figures import bridge_analysis

Build = Callable[[Any], Assembly]


def test_the_observer_is_the_independent_coupling(residual: Any) -> None:
    """A second run, with the bits of the first."""
    plan = residual.model.plan
    recipe = Recipe.parse(plan.recipe).replace(
        coupling="independent", beta=plan.beta, percentile=plan.percentile
    )
    other = run(residual.prepared, recipe).plan
    data = residual.model.report["figures"]["bridge-analysis"]
    assert len(data["rows"]) == data["channels"] == 3 * 8 + 3 * 16
    for r in data["rows"]:
        theta = float(residual.prepared.folded.specs[r["neuron"]].theta)
        mine, observed = (p.neurons[r["neuron"]] for p in (plan, other))
        assert mine.bits == observed.bits and r["bits"] == mine.bits[r["channel"]]
        assert r["bridged"] * theta == pytest.approx(mine.scales[r["channel"]], rel=1e-5)
        assert r["observer"] * theta == pytest.approx(observed.scales[r["channel"]], rel=1e-5)
    ratios = [r["bridged"] / r["observer"] for r in data["rows"]]
    assert data["median_ratio"] == pytest.approx(median(ratios), rel=1e-4)
    near = [r for r in ratios if abs(r - 0.5) > 1e-4 and abs(r - 2) > 1e-4]
    assert data["within_factor_2"] == pytest.approx(sum(0.5 < r < 2 for r in near) / len(ratios), abs=0.03)


def test_every_exponent_is_counted(residual: Any) -> None:
    plan, data = residual.model.plan, residual.model.report["figures"]["bridge-analysis"]
    ks = [k for p in plan.neurons.values() if p.in_budget for k in p.k]
    assert data["k"] == {str(k): ks.count(k) for k in sorted(set(ks))}
    assert sum(data["k"].values()) == data["channels"]


def test_some_rows_of_many(residual: Any, assembled: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = assembled(residual)
    whole = bridge_data(assembly, residual.model.plan)
    monkeypatch.setattr(bridge_analysis, "OBSERVED", 10)
    some = bridge_data(assembly, residual.model.plan)
    assert whole is not None and some is not None
    assert len(some["rows"]) == 10 and some["k"] == whole["k"] and some["channels"] == 72
    assert [some["rows"][0], some["rows"][-1]] == [whole["rows"][0], whole["rows"][-1]]
    assert all(r in whole["rows"] for r in some["rows"])


def test_other_couplings_have_none(twice: Any) -> None:
    assert "bridge-analysis" not in twice.model.report["figures"]

"""The ranking and the stages against the plan; nothing is measured a second time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ptq4snn.allocation import mixed
from ptq4snn.assemble import Assembly
from ptq4snn.cost.neuron_facts import stages_of
from ptq4snn.evaluation.figure_sources import allocation_data
from ptq4snn.pipeline import run
from ptq4snn.recipe import Recipe
from ptq4snn.report.figures import allocation
from ptq4snn.report.figures.common import evenly, rounded

Build = Callable[[Any], Assembly]


def test_the_ranking_gives_the_bits(residual: Any) -> None:
    data, plan = residual.model.report["figures"]["allocation"], residual.model.plan
    rows = data["rows"]
    assert (data["by"], data["beta"], data["percentile"]) == ("mpba", plan.beta, plan.percentile)
    assert [r["rank"] for r in rows] == list(range(1, 73))
    scores = [r["score"] for r in rows]
    assert scores == sorted(scores, reverse=True)
    last = {n for n, i in residual.prepared.folded.discovery.neurons.items() if i.last}
    free = [r["bits"] for r in rows if r["neuron"] not in last]  # the others have at least 4 bits
    assert free == sorted(free, reverse=True) and len(set(free)) > 1
    for r in rows:
        assert r["bits"] == plan.neurons[r["neuron"]].bits[r["channel"]]
    average = sum(r["bits"] * r["elements"] for r in rows) / sum(r["elements"] for r in rows)
    assert data["average_bits"] == pytest.approx(average, rel=1e-5)
    assert {r["neuron"] for r in rows} == {n for n, p in plan.neurons.items() if p.in_budget}


def test_stages(residual: Any) -> None:
    data = residual.model.report["figures"]["allocation"]
    rows = data["rows"]
    assert list(data["stages"]) == ["layer1", "layer2"]
    for stage, shares in data["stages"].items():
        mine = [r for r in rows if r["stage"] == stage]
        total = sum(r["elements"] for r in mine)
        for bits, share in shares.items():
            found = sum(r["elements"] for r in mine if r["bits"] == int(bits))
            assert share == pytest.approx(found / total, rel=1e-5)
        assert sum(shares.values()) == pytest.approx(1, rel=1e-5)
    assert {n["stage"] for n in residual.model.report["neurons"]} == {"sn1", "layer1", "layer2"}


def test_no_second_pass(residual: Any, twice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "sensitivity", None)  # whoever measures it again fails
    recipe = Recipe.parse(residual.model.plan.recipe)
    again = run(residual.prepared, recipe).report["figures"]["allocation"]
    assert again == residual.model.report["figures"]["allocation"]
    found = run(twice.prepared, recipe.replace(allocation="uniform")).report["figures"]["allocation"]
    assert (found["by"], found["beta"], found["rows"]) == ("uniform", None, [])
    assert found["stages"] == {"sn2": {"4": 1.0}}


def test_by_benefit(residual: Any) -> None:
    recipe = Recipe.parse("nearest+replay+benefit").replace(membrane=3.0, calibration=64, holdout=16)
    report = run(residual.prepared, recipe.replace(sequential=False)).report
    data = report["figures"]["allocation"]
    assert (data["by"], data["beta"], data["rows"]) == ("benefit", None, [])
    assert any(len(shares) > 1 for shares in data["stages"].values())
    assert report["trials"] and "sweep" not in report["figures"]  # there is no (beta, P)


def test_nothing_is_allocated_to_wide_states(residual: Any) -> None:
    recipe = Recipe.parse(residual.model.plan.recipe).replace(coupling="none")
    figures = run(residual.prepared, recipe).report["figures"]
    assert set(figures) == {"membrane-cost", "memory"}


def test_some_rows_of_many(residual: Any, assembled: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "ROWS", 7)
    data = allocation_data(residual.prepared, assembled(residual), residual.model.plan)
    assert data is not None and [r["rank"] for r in data["rows"]] == [1, 12, 24, 36, 48, 60, 72]


def test_the_sweep_is_the_trials(residual: Any, twice: Any) -> None:
    report = residual.model.report
    rows = report["figures"]["sweep"]["rows"]
    assert [(r["beta"], r["percentile"]) for r in rows] == [(0.0, 97.0), (0.8, 97.0)]
    for r, t in zip(rows, report["trials"], strict=True):
        assert r == pytest.approx({k: t[k] for k in r}, rel=1e-5)
    assert "sweep" not in twice.model.report["figures"]


def test_memory_adds_up(residual: Any, summed: Any) -> None:
    for case in (residual, summed):
        s, rows = case.model.report["summary"], case.model.report["figures"]["memory"]["rows"]
        by = {r["part"]: r for r in rows}
        w, b = s["weight_bytes"], s["state_bytes"]
        assert by["weights"] == {"part": "weights", "before": w["float"], "after": w["quantized"]}
        assert by["scales and biases"]["after"] == w["scales"] + w["biases"]
        assert (by["states"]["before"], by["states"]["after"]) == (b["float"], b["payload"])
        assert by["states"]["after"] + by["metadata"]["after"] == b["packed"]
        assert by["stream buffers"]["before"] == 2 * by["stream buffers"]["after"] == 2 * s["stream_bytes"]


def test_stages_of_names() -> None:
    assert stages_of(["a.0.x", "a.1.x", "b.0", "c"]) == {"a.0.x": "a", "a.1.x": "a", "b.0": "b", "c": "c"}
    assert stages_of(["net.a.x", "net.b.x"]) == {"net.a.x": "net.a", "net.b.x": "net.b"}
    assert stages_of(["only"]) == {"only": "only"} and stages_of([]) == {}
    blocks = [f"block.{i}.{n}" for i in range(3) for n in ("q", "k")]  # the most of a transformer
    assert set(stages_of(["embed.lif", *blocks, "head"]).values()) == {
        "embed", "block.0", "block.1", "block.2", "head",
    }  # fmt: skip
    assert set(stages_of([f"block.{i}" for i in range(100)]).values()) == {"block"}  # not a hundred parts


def test_evenly() -> None:
    assert evenly(5, 9) == [0, 1, 2, 3, 4] and evenly(0, 3) == [] and evenly(4, 1) == [0]
    for count, limit in ((100, 7), (11, 10), (4096, 2000)):
        found = evenly(count, limit)
        steps = {b - a for a, b in pairwise(found)}
        assert (found[0], found[-1], len(found)) == (0, count - 1, limit) and max(steps) - min(steps) <= 1


def test_few_digits() -> None:
    assert rounded({"a": [1.23456789e-9, (2, "x", None)], "b": 123456789}) == {
        "a": [1.23457e-9, [2, "x", None]],
        "b": 123456789,
    }

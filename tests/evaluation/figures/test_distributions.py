"""Weights, states and grids of channels against the model that computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ptq4snn.assemble import Assembly
from ptq4snn.evaluation.figure_sources import distributions_data
from ptq4snn.observation.observe import observe
from ptq4snn.report.figures import distributions

Build = Callable[[Any], Assembly]


@pytest.fixture(params=["residual", "twice"])
def case(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_three_channels_of_every_pair_in_the_budget(case: Any) -> None:
    rows = case.model.report["figures"]["distributions"]["rows"]
    names = [n for n, p in case.model.plan.neurons.items() if p.in_budget]
    assert [r["neuron"] for r in rows] == [n for n in names for _ in range(3)]
    assert [r["which"] for r in rows] == ["narrow", "middle", "wide"] * len(names)
    for name in names:
        mine = [r["largest_state"] for r in rows if r["neuron"] == name]
        assert mine == sorted(mine)


def test_grids_are_those_of_the_model(case: Any) -> None:
    plan, folded = case.model.plan, case.prepared.folded
    for r in case.model.report["figures"]["distributions"]["rows"]:
        n, c, info = plan.neurons[r["neuron"]], r["channel"], folded.discovery.neurons[r["neuron"]]
        theta = float(folded.specs[r["neuron"]].theta)
        assert (r["bits"], r["zero"], r["k"]) == (n.bits[c], n.zero[c], n.k[c])
        assert r["scale"] * theta == pytest.approx(n.scales[c], rel=1e-5)
        source, (name,) = int(info.source_channel[c]), info.projections
        weight = folded.weight(name)[source].double().flatten() / theta
        assert r["weight_bits"] == 4 and sum(r["weights"]["counts"]) == weight.numel()
        assert r["largest_weight"] == pytest.approx(float(weight.abs().max()), rel=1e-5)
        stored = case.model.integers[name].weight[source].flatten()  # the integers that are computed with
        inside = (stored > -8) & (stored < 7)
        error = (stored * r["weight_scale"] - weight)[inside].abs()
        assert float(error.max()) <= r["weight_scale"] * 0.5001


def test_states_beside_recorded_ones(twice: Any, assembled: Build) -> None:
    """All states of the float network, from a probe, in the bins that are drawn."""
    p = replace(twice.prepared, seen=observe(twice.prepared.folded, twice.prepared.reported, 0))
    seen: list[torch.Tensor] = []
    core = p.folded.core("sn2")
    core.probe = lambda x, h, s, v, t: seen.append(v)
    with torch.no_grad():
        for x in p.reported:
            p.folded.model(x)
    core.probe = None
    states = torch.cat(seen).double() / float(p.folded.specs["sn2"].theta)  # [T * B, C]
    figure = distributions_data(p, assembled(twice), twice.model.plan)
    assert figure is not None and figure["units"] == "theta"
    for r in figure["rows"]:
        v = states[:, r["channel"]].numpy()
        edges, counts = np.array(r["states"]["edges"]), np.array(r["states"]["counts"])
        assert counts.sum() == pytest.approx(len(v)) and len(counts) == 48
        exact = np.array([(v < e).sum() for e in edges[1:-1]])
        # mass stays in its logarithmic bin, an eighth of an octave: shifted so far, the counts enclose it
        low, high = (
            np.array([(v < e + side * (abs(e) / 8 + 2**-10)).sum() for e in edges[1:-1]]) for side in (-1, 1)
        )
        found = counts.cumsum()[:-1]
        assert (low - 1e-6 <= found).all() and (found <= high + 1e-6).all()
        assert np.abs(found - exact).mean() < 0.03 * len(v)
        ends = [r["scale"] * (r["zero"] + level) for level in (-8.5, 7.5)]
        outside = ((v < ends[0]) | (v > ends[1])).mean()
        assert r["outside"] == pytest.approx(outside, abs=0.02)


def test_range_of_the_axis(case: Any) -> None:
    """The grid is on the axis where it leaves the states room enough."""
    for r in case.model.report["figures"]["distributions"]["rows"]:
        a, b = r["states"]["edges"][0], r["states"]["edges"][-1]
        low, high = (
            r["scale"] * (r["zero"] + v) for v in (-(2 ** (r["bits"] - 1)), 2 ** (r["bits"] - 1) - 1)
        )
        covered = a <= low + 1e-4 and high - 1e-4 <= b
        assert covered or max(high, b) - min(low, a) > 2.5 * (b - a) * 0.999


def test_at_most_some_pairs(residual: Any, assembled: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "PAIRS", 2)
    figure = distributions_data(residual.prepared, assembled(residual), residual.model.plan)
    names = [n for n, p in residual.model.plan.neurons.items() if p.in_budget]
    assert figure is not None
    assert list(dict.fromkeys(r["neuron"] for r in figure["rows"])) == [names[0], names[-1]]


def test_no_pair(summed: Any) -> None:
    """sn2 reads a stream, sn1 is the stem."""
    assert "distributions" not in summed.model.report["figures"]

"""Fidelity against a recomputation in plain loops from recorded currents and spikes."""

from __future__ import annotations

import importlib.util
import math
import sys
from itertools import permutations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.evaluation import fidelity
from ptq4snn.evaluation.fidelity import Fidelity, compare, emd
from ptq4snn.modules.readout import divergence


def load_oracles() -> ModuleType:
    """tests are no packages: load the module beside this one by its path."""
    spec = importlib.util.spec_from_file_location(
        "evaluation_oracles", Path(__file__).with_name("oracles.py")
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluation_oracles"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


oracles = load_oracles()


@pytest.fixture(params=["residual", "twice"], scope="module")
def case(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def found(case: Any) -> Fidelity:
    return compare(case.prepared, case.model)


@pytest.fixture(scope="module")
def both(case: Any) -> tuple[Any, Any]:
    """Recorded calls of the float and of the quantized model."""
    p, q = case.prepared, case.model
    names = list(p.folded.discovery.neurons)
    return (
        oracles.calls(p.folded.model, p.folded.model, names, p.reported),
        oracles.calls(q, q.model, names, p.reported),
    )


def test_networks_are_worth_comparing(found: Fidelity) -> None:
    assert found.flip_rate and found.saturation(found.neurons) and found.emd
    assert 0.02 < np.mean([n.rate_before for n in found.neurons.values()]) < 0.9


def test_rates_flips_and_silent_channels(found: Fidelity, both: tuple[Any, Any]) -> None:
    before, after = both
    total = positions = 0
    for name, f in found.neurons.items():
        a = np.concatenate([c.spikes for c in before[name]], 1)
        b = np.concatenate([c.spikes for c in after[name]], 1)
        for c in range(a.shape[2]):
            assert float(f.rates_before[c]) == pytest.approx(a[:, :, c].mean(), abs=1e-12)
            assert float(f.rates_after[c]) == pytest.approx(b[:, :, c].mean(), abs=1e-12)
        flips = sum(int(x != y) for x, y in zip(a.ravel(), b.ravel(), strict=True))
        assert (f.flips, f.positions) == (flips, a.size)
        assert f.silent_before == sum(a[:, :, c].max() == 0 for c in range(a.shape[2]))
        assert f.silent_after == sum(b[:, :, c].max() == 0 for c in range(a.shape[2]))
        total, positions = total + flips, positions + a.size
    assert found.flip_rate == total / positions


def test_saturation(case: Any, found: Fidelity, both: tuple[Any, Any]) -> None:
    total = states = 0
    for name, f in found.neurons.items():
        calls = both[1][name]
        count = sum(oracles.integer_states(case.model.plan.neurons[name], c)[1].sum() for c in calls)
        assert (f.saturated, f.states) == (count, sum(c.spikes.size for c in calls))
        total, states = total + count, states + f.states
    assert found.saturation(found.neurons) == pytest.approx(100 * total / states)
    some = list(found.neurons)[1:]
    part = [found.neurons[n] for n in some]
    share = sum(f.saturated for f in part) / sum(f.states for f in part)
    assert found.saturation(some) == pytest.approx(100 * share)


def test_divergence_of_the_state(case: Any, found: Fidelity, both: tuple[Any, Any]) -> None:
    for name, f in found.neurons.items():
        spec, plan = case.prepared.folded.specs[name], case.model.plan.neurons[name]
        a = np.concatenate([oracles.float_states(spec, c) for c in both[0][name]], 1)
        b = np.concatenate([oracles.integer_states(plan, c)[0] for c in both[1][name]], 1)
        assert len(f.over_time.divergence) == len(a)
        for t, value in enumerate(f.over_time.divergence):
            expected = np.sqrt(np.mean(((b[t] - a[t]) / float(spec.theta)) ** 2))
            assert value == pytest.approx(expected, rel=1e-4)


def test_every_time_step(case: Any, found: Fidelity, both: tuple[Any, Any]) -> None:
    """Spikes and clipped states recounted; two calls of a neuron in one forward pass fall together."""
    for name, f in found.neurons.items():
        a, b = (np.concatenate([c.spikes for c in side[name]], 1) for side in both)
        plan = case.model.plan.neurons[name]
        clipped = sum(oracles.integer_states(plan, c)[1] for c in both[1][name])
        steps = f.over_time
        for t in range(len(a)):
            flips = sum(int(x != y) for x, y in zip(a[t].ravel(), b[t].ravel(), strict=True))
            assert steps.flips[t] == flips / a[t].size
            assert steps.saturation[t] == clipped[t] / a[t].size
            assert steps.rates_before[t] == pytest.approx(a[t].mean(), abs=1e-12)
            assert steps.rates_after[t] == pytest.approx(b[t].mean(), abs=1e-12)
        assert {len(x) for x in vars(steps).values()} == {len(a)}
    assert len({x for f in found.neurons.values() for x in f.over_time.flips}) > 2  # they do differ


def test_time_and_batch_on_one_axis(merged: Any) -> None:
    """A neuron that runs through [T * B] as if it were time still has T steps."""
    p, q = merged.prepared, merged.model
    found = compare(p, q).neurons["sn2"].over_time
    before, after = (
        np.concatenate(
            [c.spikes.reshape(4, 8, -1) for c in oracles.calls(m, inner, ["sn2"], p.reported)["sn2"]], 1
        )
        for m, inner in ((p.folded.model, p.folded.model), (q, q.model))
    )
    assert found.rates_before == pytest.approx(before.mean((1, 2)))
    assert found.rates_after == pytest.approx(after.mean((1, 2)))
    assert found.flips == pytest.approx((before != after).mean((1, 2)))
    assert max(found.flips) > 0 and len(found.divergence) == len(found.saturation) == 4


def test_logits_and_inputs(case: Any, found: Fidelity) -> None:
    p, q = case.prepared, case.model
    with torch.no_grad():
        expected = [torch.cat([m(x) for x in p.reported]) for m in (p.folded.model, q)]
    assert (found.kl, found.agreement) == pytest.approx(divergence(*expected))
    assert found.samples == len(expected[0])


def test_a_segmentation_is_compared_pixel_by_pixel(pixelwise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = pixelwise.prepared, pixelwise.model
    with torch.no_grad():
        a, b = (torch.cat([m(x) for x in p.reported]).double().movedim(1, -1) for m in (p.folded.model, q))
    assert a.shape == (16, 4, 3, 4)  # [B, H/2, W/2, classes]
    kl, equal = [], []
    for x, y in zip(a.flatten(0, 2).tolist(), b.flatten(0, 2).tolist(), strict=True):
        (c, d) = (math.log(sum(map(math.exp, v))) for v in (x, y))
        kl.append(sum(math.exp(s - c) * (s - c - t + d) for s, t in zip(x, y, strict=True)))
        equal.append(x.index(max(x)) == y.index(max(y)))
    assert 0.3 < np.mean(equal) < 1 and np.mean(kl) > 0
    for held in (fidelity.HELD_BYTES, 1):  # all at once, and one image at a time
        monkeypatch.setattr(fidelity, "HELD_BYTES", held)
        found = compare(p, q)
        assert found.samples == 16
        assert found.agreement == pytest.approx(np.mean(equal), abs=1e-9)
        assert found.kl == pytest.approx(np.mean(kl), rel=1e-4)
    assert q.report["summary"]["agreement"] == pytest.approx(np.mean(equal), abs=1e-9)


def test_first_samples_of_a_segmentation_are_kept(pixelwise: Any, residual: Any) -> None:
    p, q = pixelwise.prepared, pixelwise.model
    found = compare(p, q)
    assert found.task == "segmentation" and found.examples is not None
    assert (found.examples.classes, len(found.examples.rows)) == (4, 4)
    x = p.reported[0][:4]
    with torch.no_grad():
        logits = [m(x) for m in (p.folded.model, q)]
    for i, e in enumerate(found.examples.rows):
        assert torch.equal(e.x, x[i]) and e.label is None
        for kept, y in zip((e.before, e.after), logits, strict=True):
            whole = torch.nn.functional.interpolate(y[i : i + 1], size=(8, 6), mode="bilinear")
            assert kept is not None and torch.equal(kept, whole[0].argmax(0))
    assert compare(residual.prepared, residual.model).examples is None


def test_input_firing_of_spike_sums(residual: Any) -> None:
    found = compare(residual.prepared, residual.model)
    rate = {n: f.rate_after for n, f in found.neurons.items()}
    assert found.firing_after["layer1.0.conv1"] == pytest.approx(rate["sn1"])
    both = rate["layer1.0.sn2"] + rate["layer1.0.downsample_sn"]
    assert found.firing_after["layer2.0.conv1"] == pytest.approx(both, rel=1e-5)
    assert "conv1" not in found.firing_after  # reads data


def test_small_parts_give_the_same(residual: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compare(residual.prepared, residual.model)
    monkeypatch.setattr(fidelity, "HELD_BYTES", 1)
    parts = compare(residual.prepared, residual.model)
    assert parts.samples == whole.samples
    assert parts.kl == pytest.approx(whole.kl, rel=1e-3, abs=1e-9)
    for name, f in whole.neurons.items():
        assert parts.neurons[name].saturated == f.saturated
        assert parts.neurons[name].positions == f.positions
        assert torch.equal(parts.neurons[name].rates_after, f.rates_after)


def test_probes_are_taken_off(case: Any, found: Fidelity) -> None:
    for name in found.neurons:
        assert case.prepared.folded.core(name).probe is None
        assert case.model.core(name).probe is None


rates = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6)


@given(rates)
def test_emd_is_the_cheapest_assignment(pairs: list[tuple[float, float]]) -> None:
    a, b = ([p[i] for p in pairs] for i in range(2))
    best = min(sum(abs(x - y) for x, y in zip(a, order, strict=True)) for order in permutations(b)) / len(a)
    found = emd(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
    assert found == pytest.approx(best, abs=1e-12)

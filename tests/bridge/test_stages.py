"""The lattice in stages: each is a value of its own, and leaves the one before as it was."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.pipeline import run
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe
from ptq4snn.rounding.store import Rounded

NAME = "layer1.0.conv1"


@pytest.fixture(scope="module")
def nearest(observed: Prepared) -> Lattice:
    return Lattice.of(observed.folded, observed.seen, Recipe())


def contents(lattice: Lattice) -> list[torch.Tensor]:
    """Everything that a stage may change."""
    found = [t for p in lattice.projections.values() for t in (p.weight.scales, p.weight.integers, p.bias)]
    found += [t for p in lattice.projections.values() for t in (p.peak, p.unit)]
    found += [n.unit for n in lattice.neurons.values()]
    return [t.clone() for t in found]


def test_scales_move_integers_units_and_neurons(nearest: Lattice) -> None:
    before, p = contents(nearest), nearest.projections[NAME]
    moved = nearest.with_scales({NAME: 2 * p.weight.scales})
    q = moved.projections[NAME]
    assert torch.equal(q.weight.scales, 2 * p.weight.scales) and torch.equal(q.lattice, 2 * p.lattice)
    assert float(q.weight.integers.abs().max()) < float(p.weight.integers.abs().max())
    assert torch.equal(moved.neurons["layer1.0.sn1"].scale, 2 * nearest.neurons["layer1.0.sn1"].scale)
    assert moved.projections["conv1"].weight.scales.equal(nearest.projections["conv1"].weight.scales)
    assert all(a.equal(b) for a, b in zip(before, contents(nearest), strict=True))


def test_integers_keep_their_scales_and_move_the_bounds(nearest: Lattice) -> None:
    before, p = contents(nearest), nearest.projections[NAME]
    moved = nearest.with_integers({NAME: torch.full_like(p.weight.integers, 7.0)})
    q = moved.projections[NAME]
    assert q.weight.scales is p.weight.scales and bool((q.weight.integers == 7).all())
    inputs = p.weight.integers[0].numel()
    assert q.peak.tolist() == [7.0 * inputs * q.info.hi] * len(q.peak)  # every input at its largest
    assert q.bound() > p.bound() and q.shift <= p.shift
    assert all(a.equal(b) for a, b in zip(before, contents(nearest), strict=True))


def test_biases_move_the_shift_of_all_that_hangs_together(nearest: Lattice) -> None:
    before, p = contents(nearest), nearest.projections[NAME]
    large = torch.full_like(p.bias, float(p.lattice.max()) * 2**19)
    moved = nearest.with_biases({NAME: large})
    q = moved.projections[NAME]
    assert q.bias is large and q.weight is p.weight
    assert q.shift == moved.neurons["layer1.0.sn1"].shift < p.shift
    assert all(a.equal(b) for a, b in zip(before, contents(nearest), strict=True))


def test_later_stages_keep_what_earlier_ones_settled(nearest: Lattice) -> None:
    p = nearest.projections[NAME]
    scales, bias = 1.5 * p.weight.scales, p.bias + 0.25
    integers = torch.ones_like(p.weight.integers)
    q = nearest.with_scales({NAME: scales}).with_integers({NAME: integers}).with_biases({NAME: bias})
    made = q.projections[NAME]
    assert made.weight.scales.equal(scales) and made.weight.integers.equal(integers) and made.bias.equal(bias)
    again = q.with_scales({})  # integers and biases begin again
    expected = nearest.with_scales({NAME: scales})
    assert all(a.equal(b) for a, b in zip(contents(again), contents(expected), strict=True))


def test_nothing_is_assigned_to(nearest: Lattice, observed: Prepared) -> None:
    for value, field in ((nearest, "projections"), (nearest.projections[NAME], "bias"), (observed, "work")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, field, None)


def test_a_folder_for_finished_units_is_a_new_value_with_the_same_cache(
    observed: Prepared, tmp_path: Path
) -> None:
    other = observed.with_work(tmp_path)
    assert (observed.work, other.work) == (None, tmp_path) and other.cache is observed.cache
    assert other.with_work(None).work is None


def test_a_run_changes_nothing_but_the_cache(observed: Prepared) -> None:
    before = dict(vars(observed))
    run(observed, Recipe(rounding="gptq", holdout=16, sensitivity_batches=1, allocation="mpba"))
    assert all(vars(observed)[name] is value for name, value in before.items())
    cache = observed.cache
    assert cache.rounded and cache.sensitivities and cache.traces and cache.logits


def test_rounded_units_are_joined_to_a_new_value() -> None:
    a, b = Rounded({"x": torch.zeros(1)}, {"x": 2}), Rounded({"y": torch.ones(1)}, {"y": 0})
    both = a | b
    assert list(both.integers) == ["x", "y"] and both.dead == {"x": 2, "y": 0}
    assert list(a.integers) == ["x"] and list(b.integers) == ["y"]

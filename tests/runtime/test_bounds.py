"""Bounds hold for the worst inputs, are not far from them, and what could overflow is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.handmade import ONES, base, change, made, number, output
from runtime.programs import models

from ptq4snn.errors import BundleError
from ptq4snn.network.program import Neuron, Project
from ptq4snn.runtime.neuron_bounds import after_reset
from ptq4snn.runtime.parameters import InputGrid, Model
from ptq4snn.runtime.ranges import Range
from ptq4snn.runtime.reference import NumpyExecutor


def extreme(model: Model, seed: int, steps: int) -> Any:
    """Inputs at the ends of the grid, which drive every channel as far as it goes: [T, B, N]."""
    rng = np.random.default_rng(seed)
    timed = model.program.input.time_axis is not None
    shape = (steps if timed else 1, 4, int(np.prod(model.program.input.shape)))
    return np.where(rng.random(shape) < rng.random((1, 4, 1)), -1e9, 1e9).astype(np.float32)


@settings(max_examples=80)
@given(models(work=20000), st.integers(0, 999))
def test_no_value_leaves_its_bounds(model: Model, seed: int) -> None:
    steps = 6
    keep = range(len(model.program.values))
    found = NumpyExecutor(model).execute(extreme(model, seed, steps), steps, None, keep, 1)
    for v in keep:
        low, high = model.bounds.values[v]
        assert low <= found[v].min() and found[v].max() <= high
    for op in model.program.operations:
        if isinstance(op, Neuron) and op.potential is not None and not op.carried:
            assert np.abs(found[op.potential]).max() <= model.bounds.potentials[op.name]


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(-5, 60), st.integers(2, 9), st.integers(-80, 80), st.integers(0, 120))
def test_what_counts_leave_of_a_potential(theta: int, rho: int, most: int, low: int, wide: int) -> None:
    """Against every A of the range; where rho is theta, as it mostly is, nothing is taken below 0."""
    a = np.arange(low, low + wide + 1)
    rest = a - rho * np.clip(a // theta, 0, most)
    one = np.ones(1)
    parts = base()
    n = replace(
        parts["neurons"]["lif"], theta=np.array([theta]), rho=np.array([rho]), most=most, reset="soft"
    )
    found = after_reset(Range(low * one, (low + wide) * one), n)
    assert found.lo[0] <= rest.min() and rest.max() <= found.hi[0]
    if rho == theta:
        assert found.lo[0] >= min(low, 0)


def test_sums_of_a_projection_are_reached() -> None:
    """For each channel the input that is worst for it gives exactly the bound."""
    rng = np.random.default_rng(0)
    parts = base()
    weight = rng.integers(-8, 8, (3, 2, 3, 3)).astype(np.int8)
    number("projections", "conv", weight=weight)(parts)
    low, high = made(parts).bounds.sums["conv"]
    positive, negative = np.maximum(weight, 0).sum((1, 2, 3)), np.minimum(weight, 0).sum((1, 2, 3))
    np.testing.assert_array_equal(high, 255 * positive)
    np.testing.assert_array_equal(low, 255 * negative)


def test_a_projection_that_runs_twice_has_both_its_ranges() -> None:
    parts = base()
    p = parts["program"]
    wide = replace(p.operations[1], output=len(p.values), inputs=(len(p.values) + 1,))
    scaled = replace(p.operations[6], output=len(p.values) + 1, inputs=(0, 0))  # the input's square
    program = replace(
        p, values=(*p.values, p.values[1], p.values[0]), operations=(*p.operations, scaled, wide)
    )
    low, high = made({**parts, "program": program}).bounds.sums["conv"]
    assert isinstance(wide, Project) and high.max() == 18 * 255 * 255 and low.min() == 0


REFUSED = {
    "the sum": lambda p: number("projections", "conv", shift=20)(p),
    "the bias": lambda p: number("projections", "conv", bias=(2**31 - 1) * ONES)(p),
    "the zero point": lambda p: number(
        "projections", "conv", input=InputGrid(np.ones(2), np.array([2**45, 0]))
    )(p),
    "the input": lambda p: change("lif", factor=2**20)(p),
    "the charge": lambda p: number("neurons", "lif", charge_m=2**30 * ONES, charge_n=0 * ONES)(p),
    "the state": lambda p: number("neurons", "lif", charge_m=2**51 * ONES, charge_n=30 * ONES)(p),
    "the settling": lambda p: number("neurons", "lif", settle_m=2**50 * ONES)(p),
    "the reset": lambda p: number("neurons", "lif", reset="soft", rho=2**32 * ONES)(p),
    "the combination": lambda p: change("add", coefficients=(2**30, 2**30))(p),
    "the constant": lambda p: change("add", constant=2**31)(p),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_overflow_is_refused_and_named(case: str) -> None:
    parts = base()
    REFUSED[case](parts)
    with pytest.raises(BundleError, match=r"'(conv|lif|add)': .* can reach .* does not fit"):
        made(parts)


def test_a_time_sum_may_leave_int32_but_not_the_exact_floats() -> None:
    parts = base()
    change("add", constant=2**20)(parts)
    change("sum", inputs=(5,))(parts)
    bounds = made(parts).bounds  # for as many steps as stay exact: twice as many would not
    assert bounds.values[11] == (0, (2**20 + 2) * bounds.steps)
    assert bounds.values[11][1] < 2**53 <= 2 * bounds.values[11][1]
    change("last", factor=2**20)(parts)
    with pytest.raises(BundleError, match="53 bits"):
        made(parts)


def test_over_time_is_bounded_at_calibration_not_at_the_longest_sequence() -> None:
    """A mean over T' steps in the unit of T: T' may be 2^50, the result stays where T brings it."""
    parts = base()
    number("neurons", "last", over_time=True)(parts)
    assert made(parts).bounds.potentials["last"] == 2 * 4 + 1
    bounds = made(base()).bounds
    assert bounds.potentials["last"] == 2 * bounds.steps > 2**50


def test_states_of_32_bits_may_leave_int32() -> None:
    parts = base()
    wide = {"bits": 32 * ONES, "low": -(2**31) * ONES, "high": (2**31 - 1) * ONES, "charge_n": 0 * ONES}
    number("neurons", "lif", **wide)(parts)
    model = made(parts)
    assert 2**31 < model.bounds.potentials["lif"] < 2**32
    assert model.bounds.values[13][0] == -(2**31)
    output(1, scalings=())(parts)
    made(parts)

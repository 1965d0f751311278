"""The NumPy executor against the oracle in Python's integers, and its independence of how a batch is cut."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.handmade import WINDOW, base, change, made, number, value
from runtime.oracle import Oracle
from runtime.programs import models, placed, random_input, random_model

from ptq4snn.network.index import identity
from ptq4snn.network.program import (
    OPERATIONS,
    Input,
    Neuron,
    Output,
    Program,
    Project,
    Quantize,
    TimeSum,
    Value,
)
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.parameters import InputGrid, Model, ProjectionNumbers
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State, rows_of, unpack_rows

seeds = st.integers(0, 1000)


def flat(model: Model, x: Any) -> Any:
    """[T, B, N] as executors read it."""
    return Runtime(model, "numpy")._samples(x)


def agrees(model: Model, seed: int, batch: int, steps: int) -> None:
    x = flat(model, random_input(model, seed, batch, steps))
    state = State.new(model, batch)
    every = range(len(model.program.values))
    found = NumpyExecutor(model).execute(x, steps, state, every, 1)
    want = Oracle(model, x.tolist(), steps)
    for v in every:
        shape = found[v].shape
        assert found[v].tolist() == np.asarray(want.values[v], dtype=object).reshape(shape).tolist(), v
        low, high = model.bounds.values[v]
        assert low <= found[v].min() and found[v].max() <= high
    for op in model.program.operations:
        if isinstance(op, Neuron) and not op.once:
            v_q = unpack_rows(rows_of(model, op), state.rows[op.output]).reshape(batch, -1)
            assert v_q.tolist() == want.states[op.name]
    assert state.steps == steps


@settings(max_examples=40)
@given(models(), seeds, st.integers(1, 3))
def test_random_programs_give_the_oracles_integers(model: Model, seed: int, steps: int) -> None:
    agrees(model, seed, 2, steps)


@pytest.mark.parametrize("seed", range(8))
def test_biases_of_positions_and_inputs_that_the_model_normalises(seed: int) -> None:
    model = placed(random_model(seed, 4, 1000), seed)
    agrees(model, seed, 2, model.program.steps)


def test_the_generator_knows_every_operation_and_both_roundings() -> None:
    some = [random_model(seed, 8) for seed in range(60)]
    assert {op.kind for m in some for op in m.program.operations} == set(OPERATIONS)
    neurons = [n for m in some for n in m.neurons.values()]
    assert {n.rounding for n in neurons} == {"even", "dither"}
    assert {n.reset for n in neurons} == {"hard", "soft", "none"}
    assert {int(b) for n in neurons for b in n.bits} == {2, 3, 4, 5, 6, 7, 8, 16, 32}
    assert any(n.over_time for n in neurons)
    assert any(p.over_time and p.role != "output" for m in some for p in m.projections.values())


def test_spikes_are_neither_rare_nor_certain() -> None:
    """Else the comparisons above would compare nothing."""
    rates = []
    for seed in range(30):
        model = random_model(seed)
        trace = Runtime(model, "numpy").trace(random_input(model, seed, 2))
        rates += [float((t["spikes"] > 0).mean()) for t in trace.values()]
    assert 0.1 < np.mean(rates) < 0.6
    assert np.mean([0 < r < 1 for r in rates]) > 0.5


@settings(max_examples=40)
@given(models(work=20000), seeds)
def test_samples_do_not_see_each_other_nor_the_tile(model: Model, seed: int) -> None:
    x = flat(model, random_input(model, seed, 5))
    keep = range(len(model.program.values))
    whole = NumpyExecutor(model).execute(x, model.program.steps, None, keep, 1)
    tiled = NumpyExecutor(model, tile=1).execute(x, model.program.steps, None, keep, 2)
    alone = NumpyExecutor(model).execute(x[:, 3:4], model.program.steps, None, keep, 1)
    for v in keep:
        np.testing.assert_array_equal(whole[v], tiled[v])
        np.testing.assert_array_equal(whole[v][..., 3:4, :, :], alone[v])


def test_other_steps_are_rounded_as_the_simulation_rounds_them() -> None:
    """45 * (7 / 10) is just below 31.5 in float64, 45 * 7 / 10 is not; the simulation has the former."""
    one = np.ones(1, np.int64)
    values = (Value(1, 1, True), *[Value(1, 1, False)] * 4)
    operations = (
        Quantize(0, (), "fc", identity(1)),
        TimeSum(1, (0,), "sum"),
        Project(2, (1,), "fc", None, 1),
        Neuron(3, (1,), "lif", 1, None, None, True, 4),
    )
    out = Output(2, "count", None, -1, identity(1), (1,), 0, None, "float64", ())
    neuron = replace(base()["neurons"]["last"], over_time=True, bits=8 * one, shape=(1,))
    vectors = ("zero", "low", "high", "theta", "rho", "charge_m", "charge_n", "settle_m", "settle_n", "unit")
    neuron = replace(neuron, **{k: getattr(neuron, k)[:1] for k in vectors})
    weight = np.ones((1, 1), np.int8)
    grid = InputGrid(np.ones(1), np.zeros(1, np.int64))
    project = ProjectionNumbers(weight, 2, 0 * one, 0, True, grid, None, np.ones(1), "pair")
    program = Program(7, Input((1,), 1, 0), values, operations, (out,))
    x = np.arange(10, dtype=np.float32).reshape(10, 1, 1)  # sums to 45
    found = NumpyExecutor(build(program, {"fc": project}, {"lif": neuron}, {})).execute(
        x, 10, None, [2, 4], 1
    )
    assert found[2].item() == 31 and found[4].item() == 31
    head = replace(project, role="output")  # not rounded at all
    model = build(program, {"fc": head}, {"lif": neuron}, {})
    real = Runtime(model, "numpy")(x)
    assert isinstance(real, np.ndarray) and real.item() == 45 * (7 / 10)


def test_padding_takes_no_part_in_a_maximum() -> None:
    parts = base()
    change("conv", window=WINDOW)(parts)
    number("projections", "conv", weight=np.full((3, 2, 3, 3), -1, np.int8))(parts)
    change("pool", inputs=(1,))(parts)
    value(3, time=False)(parts)
    value(4, time=False)(parts)
    change("add", inputs=(2, 4))(parts)
    model = made(parts)
    agrees(model, 0, 2, 2)
    x = flat(model, np.ones((1, 8), np.float32))
    assert NumpyExecutor(model).execute(x, 1, None, [3], 1)[3].max() == -8


def test_memory_follows_the_tile_not_the_batch() -> None:
    model = random_model(11, 8, work=20000)
    keep = [model.program.outputs[0].value]

    def peak(batch: int) -> int:
        x = flat(model, random_input(model, 0, batch))
        executor = NumpyExecutor(model, tile=1)
        executor.execute(x, model.program.steps, None, keep, 1)
        tracemalloc.start()
        out = executor.execute(x, model.program.steps, None, keep, 1)
        most = tracemalloc.get_traced_memory()[1] - sum(a.nbytes for a in out.values())
        tracemalloc.stop()
        return most

    assert peak(64) < 1.2 * peak(2)


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_dither_goes_through_all_its_sixteen_phases(steps: int) -> None:
    some = [random_model(seed, 0) for seed in range(60)]
    chosen = [m for m in some if any(n.rounding == "dither" for n in m.neurons.values())][:4]
    for model in chosen:
        agrees(model, 1, 1, steps)


def test_statistics_name_every_operation_and_count_spikes_only_when_asked() -> None:
    model = random_model(3, 8)
    rt = Runtime(model, "numpy")
    x = random_input(model, 0, 2)
    rt(x)
    assert all(s.milliseconds == 0 and s.density is None for s in rt.statistics().operations)
    rt.profile = True
    rt(x)
    found = rt.statistics()
    assert [s.name for s in found.operations] == [op.name for op in model.program.operations]
    assert all(s.milliseconds > 0 for s in found.operations)
    assert all((s.density is not None) == (s.kind in ("project", "matmul")) for s in found.operations)
    assert found.samples == 2 and found.steps == model.program.steps
    assert found.state_bytes == sum(a.nbytes for a in State.new(model, 1).rows.values())

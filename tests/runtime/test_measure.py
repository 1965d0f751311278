"""What is counted, against counting one by one; what is measured, against its definition."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from runtime.programs import random_model

from ptq4snn.network.program import MatMul, Neuron, Project
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.measure import (
    counted,
    float_bytes,
    measure_speed,
    multiply_adds,
    profiled,
    random_input,
    with_batch,
    working_set,
)
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.roofline import Peaks, measure_peaks, rate_of
from ptq4snn.runtime.statistics import OperationStatistics, Statistics

SEEDS = range(12)


def products(model: Model, op: Project) -> int:
    """One by one: every output element, every tap that lies inside, every input channel of its group."""
    weight = model.projections[op.name].weight
    if op.window is None:
        return model.program.values[op.output].positions * prod(weight.shape)
    w, count = op.window, 0
    for at in product(*map(range, w.out_size)):
        for tap in product(*map(range, w.kernel)):
            where = [
                o * s + k * d - b
                for o, s, k, d, b in zip(at, w.stride, tap, w.dilation, w.before, strict=True)
            ]
            count += all(0 <= i < n for i, n in zip(where, w.size, strict=True))
    return count * weight.shape[0] * weight.shape[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_multiply_adds(seed: int) -> None:
    model = random_model(seed)
    for op in model.program.operations:
        if isinstance(op, Project):
            assert multiply_adds(model, op) == products(model, op)
        elif isinstance(op, MatMul):
            rows, columns = (
                model.program.values[op.output].positions,
                model.program.values[op.output].channels,
            )
            assert multiply_adds(model, op) == rows * columns * model.program.values[op.inputs[0]].channels
        else:
            assert multiply_adds(model, op) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_float_bytes(seed: int) -> None:
    """A value is alive from the operation that makes it to the last that reads it."""
    model, steps, batch = random_model(seed), 3, 5
    program = model.program
    size = [v.positions * v.channels * (steps if v.time else 1) for v in program.values]
    made = {op.output: i for i, op in enumerate(program.operations)}
    kept = {o.value for o in program.outputs}
    most = 0
    for i in range(len(program.operations)):
        later = {v for op in program.operations[i:] for v in op.inputs} | kept
        most = max(most, sum(size[v] for v, at in made.items() if at == i or (at < i and v in later)))
    state = sum(
        program.values[op.output].positions * program.values[op.output].channels
        for op in program.operations
        if isinstance(op, Neuron) and not op.once
    )
    named = {op.name for op in program.operations if isinstance(op, Project)}
    parameters = sum(model.projections[n].weight.size + model.projections[n].bias.size for n in named)
    found = float_bytes(model, batch, steps)
    assert found.state == 4 * state and found.parameters == 4 * parameters
    assert found.working_set == 4 * (parameters + batch * (state + most))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_input_runs(seed: int) -> None:
    model = random_model(seed)
    x = random_input(model, 3)
    assert x.dtype == np.float32 and np.array_equal(x, random_input(model, 3))
    assert not np.array_equal(x, random_input(model, 3, seed=1))
    rt = Runtime(model, "numpy")
    rt.profile = True
    rt(x)
    told = rt.statistics()
    assert (told.samples, told.steps) == (3, model.program.steps)
    for before, after in zip(told.operations, counted(model, told).operations, strict=True):
        if before.density is not None and not before.macs:
            assert after.synops == int(after.macs * before.density)
        assert replace(after, macs=before.macs, synops=before.synops) == before


def test_what_an_executor_counted_stays() -> None:
    model = random_model(0)
    op = next(op for op in model.program.operations if isinstance(op, Project))
    told = OperationStatistics(op.name, op.kind, 1.0, 0.5, "event", synops=7, macs=20)
    s = Statistics("avx2", (told,), samples=2, steps=3, weights_bytes=10, state_bytes=4, arena_bytes=5)
    assert counted(model, s) == s
    assert working_set(s) == 10 + 5 + 2 * 4


def test_with_batch_repeats() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(with_batch(x, 1, 5), x[:, [0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(with_batch(x, 0, 1), x[:1])


def test_speed() -> None:
    calls: list[int] = []
    s = measure_speed(lambda: calls.append(1), batch=4, threads=2, steps=3, seconds=0.0)
    assert len(calls) == s.calls + 1 == 6  # one warms up
    assert s.p50 <= s.p90
    assert s.milliseconds_a_sample == pytest.approx(s.p50 / 4)
    assert s.samples_a_second == pytest.approx(4e3 / s.p50)


def test_rates() -> None:
    peaks = Peaks("x", adds=4e9, macs=1e9, memory=1.0)
    event = OperationStatistics("a", "project", 2.0, 0.1, "event", synops=1_000_000, macs=10_000_000)
    rate = rate_of(event, peaks)
    assert rate is not None and rate.operations == pytest.approx(5e8) and rate.share == pytest.approx(0.125)
    dense = rate_of(replace(event, path="dense"), peaks, threads=2)
    assert dense is not None and dense.operations == pytest.approx(5e9) and dense.share == pytest.approx(2.5)
    assert rate_of(replace(event, synops=0), peaks) is None
    assert rate_of(replace(event, path=""), peaks) is None
    assert rate_of(replace(event, milliseconds=0.0), peaks) is None


def test_peaks_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptq4snn.runtime.roofline.BURSTS", dict.fromkeys(range(3), (1, 1)))
    peaks = measure_peaks("numpy")
    assert peaks.kernels == "numpy" and min(peaks.adds, peaks.macs, peaks.memory) > 1e6


def test_profile_keeps_the_least_times() -> None:
    """Of three calls whose times are known."""
    model = random_model(1)
    rt = Runtime(model, "numpy")
    x = random_input(model, 2)
    once = rt.statistics
    seen: list[Statistics] = []

    def statistics() -> Statistics:
        s = once()
        times = ([3.0, 1.0], [2.0, 2.0], [4.0, 3.0])[len(seen)]
        operations = tuple(replace(op, milliseconds=times[i % 2]) for i, op in enumerate(s.operations))
        seen.append(replace(s, operations=operations))
        return seen[-1]

    rt.statistics = statistics  # type: ignore[method-assign]
    told = profiled(rt, x, None, calls=3)
    assert [op.milliseconds for op in told.operations] == [2.0, 1.0] * (len(told.operations) // 2) + [2.0] * (
        len(told.operations) % 2
    )
    assert len(seen) == 3 and not rt.profile

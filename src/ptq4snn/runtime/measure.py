"""Measured speed of a bundle, and its memory beside that of the same model in float32."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.index import window_taps
from ptq4snn.network.program import MatMul, Neuron, Operation, Project, Quantize
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS
from ptq4snn.runtime.demand import most_alive
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import State
from ptq4snn.runtime.statistics import Statistics

__all__ = [
    "FloatBytes", "Speed", "counted", "float_bytes", "interleave", "measure_speed", "multiply_adds",
    "once", "processor", "profiled", "random_input", "with_batch", "working_set",
]  # fmt: skip

FLOAT = 4  # bytes
CALLS = 5  # at least, for a p90 that says something
SECONDS = 1.0  # of calls, for each setting
LEAST_SECONDS = 0.05  # of one measurement of `interleave`: fast contenders are repeated


@dataclass(frozen=True)
class Speed:
    """Milliseconds are of a call, of all its samples."""

    batch: int
    threads: int
    steps: int
    calls: int
    p50: float
    p90: float

    @property
    def milliseconds_a_sample(self) -> float:
        return self.p50 / self.batch

    @property
    def samples_a_second(self) -> float:
        return 1e3 * self.batch / self.p50


def measure_speed(
    run: Callable[[], object], batch: int, threads: int, steps: int, seconds: float = SECONDS
) -> Speed:
    """Time calls of `run` after one that warms up."""
    run()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < CALLS or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    p90 = statistics.quantiles(times, n=10, method="inclusive")[-1]
    return Speed(batch, threads, steps, len(times), statistics.median(times), p90)


def once(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds a call."""
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def interleave(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of every contender in every round; one warm-up before.

    Others may use the machine, and clocks change: contenders take turns, and ratios are taken inside a round.
    """
    repeats = {}
    for name, work in contenders.items():
        work()
        repeats[name] = max(1, min(200, round(LEAST_SECONDS / max(once(work), 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for i in range(rounds):
        for name in order[i % len(order) :] + order[: i % len(order)]:  # nobody always follows the same one
            times[name].append(once(contenders[name], repeats[name]))
    return times


def processor() -> str:
    """The name of the CPU, as far as the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def random_input(model: Model, batch: int, seed: int = 0) -> NDArray[np.float32]:
    """Samples spread evenly over the range of the input's quantizer; the same for the same seed."""
    shape = list(model.program.input.shape)
    time_axis, batch_axis = model.program.input.time_axis, model.program.input.batch_axis
    places = {batch_axis: batch} | ({} if time_axis is None else {time_axis: model.program.steps})
    for axis in sorted(places):
        shape.insert(axis, places[axis])
    low, high = _input_range(model)
    x = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (low + (high - low) * x).astype(np.float32)


def _input_range(model: Model) -> tuple[float, float]:
    for op in model.program.operations:
        if isinstance(op, Quantize) and (grid := model.projections[op.name].input) is not None:
            zeros = grid.zeros / 2**ZERO_FRACTION_BITS
            ends = np.concatenate([-zeros * grid.scales, (255 - zeros) * grid.scales])
            return float(ends.min()), float(ends.max())
    return 0.0, 1.0


def with_batch(x: NDArray[np.float32], axis: int, batch: int) -> NDArray[np.float32]:
    """`batch` samples of x, which are repeated where there are not enough."""
    return np.ascontiguousarray(np.take(x, np.arange(batch) % x.shape[axis], axis))


@dataclass(frozen=True)
class FloatBytes:
    """The same model in float32: parameters, states of one sample, and all that is alive at once with a
    batch: parameters, states, and the values that later operations still read."""

    parameters: int
    state: int
    working_set: int


def float_bytes(model: Model, batch: int, steps: int) -> FloatBytes:
    used = {op.name for op in model.program.operations}
    parameters = sum(p.weight.size + p.bias.size for name, p in model.projections.items() if name in used)
    values = model.program.values
    state = sum(
        values[op.output].positions * values[op.output].channels
        for op in model.program.operations
        if isinstance(op, Neuron) and not op.once
    )
    alive = most_alive(model.program, steps) + state
    return FloatBytes(FLOAT * parameters, FLOAT * state, FLOAT * (parameters + batch * alive))


def working_set(s: Statistics) -> int:
    """Bytes of everything that the runtime holds while it runs."""
    return s.weights_bytes + s.arena_bytes + s.samples * s.state_bytes


def profiled(rt: Runtime, x: NDArray[np.float32], steps: int | None, calls: int = CALLS) -> Statistics:
    """Statistics of calls on x: of every operation the least time, as other processes can only add to it."""
    rt.profile = True
    found = []
    for _ in range(calls):
        rt(x, steps=steps)
        found.append(rt.statistics())
    rt.profile = False
    operations = tuple(
        replace(ops[0], milliseconds=min(op.milliseconds for op in ops))
        for ops in zip(*(s.operations for s in found), strict=True)
    )
    kept = State.new(rt.model, 1).nbytes  # executors differ in whether they count sums over time
    return counted(rt.model, replace(found[0], operations=operations, state_bytes=kept))


def multiply_adds(model: Model, op: Operation) -> int:
    """Products of one sample at one step if no input is zero; taps outside of the image take no part."""
    values = model.program.values
    if isinstance(op, MatMul):
        left = values[op.inputs[0]]
        return left.positions * left.channels * values[op.output].channels
    if not isinstance(op, Project):
        return 0
    weight = model.projections[op.name].weight  # [Cout, Cin / groups, *kernel]
    if op.window is None:
        return values[op.output].positions * weight.size
    inside = int((window_taps(op.window) >= 0).sum())
    return inside * int(weight.shape[0]) * int(weight.shape[1])


def counted(model: Model, s: Statistics) -> Statistics:
    """The statistics with operations counted where the executor did not: additions are the multiply-adds
    times the density, which is exact but for the borders of an image."""
    operations = {(op.name, op.kind): op for op in model.program.operations}
    out = []
    for one in s.operations:
        op = operations.get((one.name, one.kind))
        if op is not None and not one.macs:
            steps = s.steps if model.program.values[op.output].time else 1
            macs = multiply_adds(model, op) * s.samples * steps
            one = replace(one, macs=macs, synops=one.synops or int(macs * (one.density or 0.0)))
        out.append(one)
    return replace(s, operations=tuple(out))

"""Shortcuts of the native kernels: sums, products, pools of spikes on bit planes; streams that saturate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime.native_tools import kept_values, levels, samples
from runtime.programs import Builder

from ptq4snn.runtime.index import Index, Window, identity
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.program import Clip, Combine, Gather, Multiply, Output, Pool, Program
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

SEEDS = range(12)
Array = np.ndarray[Any, Any]


class Patterns(Builder):
    def total(self, *inputs: int) -> int:
        """A plain sum."""
        out = self.like(inputs[0], sum(self.peak[i] for i in inputs), *inputs[1:])
        self.operations.append(Combine(out, inputs, self.name("add"), (1,) * len(inputs), 0))
        return out

    def limited(self, v: int, low: int | None, high: int | None) -> int:
        out = self.like(v, self.peak[v])
        self.operations.append(Clip(out, (v,), self.name("limit"), low, high))
        return out

    def product(self, a: int, b: int) -> int:
        out = self.like(a, self.peak[a] * self.peak[b], b)
        self.operations.append(Multiply(out, (a, b), self.name("times")))
        return out

    def largest(self, v: int, width: int) -> int:
        """The maximum over neighbours along the last axis."""
        size = self.area[v]
        ones = (1,) * len(size)
        before = (*[0] * (len(size) - 1), width // 2)
        window = Window(size, (*ones[1:], width), ones, before, before, ones)
        out = self.add(window.out_size, self.values[v].channels, self.values[v].time, self.peak[v], False)
        self.operations.append(Pool(out, (v,), self.name("pool"), "max", window, None, None))
        return out

    def tokens_summed(self, v: int) -> int:
        """Over all positions, as a gather: one position remains."""
        x = self.values[v]
        index = np.arange(x.positions * x.channels).reshape(x.positions, x.channels).T
        out = self.add((1,), x.channels, x.time, self.peak[v] * x.positions, False)
        numbers = Index(numbers=tuple(index.reshape(-1).tolist()))
        self.operations.append(Gather(out, (v,), self.name("tokens"), "sum", x.positions, numbers))
        return out

    def finish(self) -> Model:
        v = self.project(self.below(len(self.values) - 1, 512))
        x = self.values[self.neuron(v)]
        size = x.positions * x.channels
        out = Output(len(self.values) - 1, "count", None, -1, identity(size), (size,), 0, 1, "float32", ())
        program = Program(self.steps, self.input, tuple(self.values), tuple(self.operations), (out,))
        return build(program, self.projections, self.neurons, self.mirrors)


def started(seed: int) -> tuple[Patterns, int]:
    """A stem and the spikes behind it."""
    b = Patterns(seed, 30_000)
    return b, b.neuron(b.project(b.quantize(), grid=True))


def spike_sums(seed: int) -> Model:
    """0..2, 0..4 and more on one to three planes, perhaps clipped: 2 and 3 inputs."""
    b, v = started(seed)
    w = b.neuron(v)
    for _ in range(3):
        v = b.total(v, w) if b.one(True, True, False) else b.total(v, w, w)
        if b.one(True, False):
            v = b.limited(v, *b.one((-1, 1), (0, 2), (None, 3), (1, 6)))
    return b.finish()


def products(seed: int) -> Model:
    """k * v, summed over tokens, times q: as in attention without a softmax."""
    b, v = started(seed)
    q, k = b.neuron(v), b.neuron(v)
    token = b.neuron(b.tokens_summed(b.product(k, v)))
    b.product(q, token)
    return b.finish()


def pools(seed: int) -> Model:
    b, v = started(seed)
    double = b.total(v, b.neuron(v))
    b.largest(b.largest(b.one(v, double), 3), 3)
    return b.finish()


def streams(seed: int) -> Model:
    """Rescaled currents added, clipped to a narrow range, read by neurons and added to again."""
    b, v = started(seed)
    stream = b.limited(b.below(b.project(v), 30_000), -2000, 2000)
    for _ in range(2):
        spikes = b.neuron(stream)
        stream = b.limited(b.total(stream, b.product(stream, spikes)), -1500, 1200)
    b.neuron(b.largest(stream, 3))
    return b.finish()


@pytest.mark.parametrize("pattern", [spike_sums, products, pools, streams])
def test_pattern(pattern: Callable[[int], Model]) -> None:
    for seed in SEEDS:
        model = pattern(seed)
        everything, steps = list(range(len(model.program.values))), model.program.steps
        x, state = samples(model, seed, 3, steps), State.new(model, 3)
        want = NumpyExecutor(model).execute(x, steps, state, everything, 1)
        for level in levels():
            for keep in (kept_values(model), everything):
                agrees(model, level, keep, x, want, state)


def agrees(model: Model, level: str, keep: list[int], x: Array, want: dict[int, Array], state: State) -> None:
    """By every path, from rest and with a state."""
    executor = NativeExecutor(model, level, keep)
    for path in ("auto", "event", "dense"):
        executor.path = path
        for v, a in executor.execute(x, state.steps, None, keep, 2).items():
            np.testing.assert_array_equal(a, want[v], err_msg=f"{executor.kernels}, {path}, value {v}")
    own = State.new(model, state.batch)
    executor.execute(x, state.steps, own, [], 1)
    for v, rows in state.rows.items():
        np.testing.assert_array_equal(own.rows[v], rows, err_msg=f"{executor.kernels}, state of {v}")

"""Shortcuts of the native kernels: sums, products, pools of spikes on bit planes; streams that saturate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime.native_tools import kept_values, levels, samples
from runtime.programs import Builder

from ptq4snn.network.index import Index, Window, identity
from ptq4snn.network.program import (
    Clip,
    Combine,
    Gather,
    Input,
    Multiply,
    Output,
    Pool,
    Program,
    Quantize,
    TimeSum,
)
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.native import NativeExecutor
from ptq4snn.runtime.parameters import Model
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

    def moved(self, v: int, positions: int, how: str, width: int, index: Index) -> int:
        """Elements by an index, as many as there were."""
        x = self.values[v]
        channels = x.positions * x.channels // positions
        out = self.add((positions,), channels, x.time, self.peak[v] * (width if how == "sum" else 1), False)
        self.operations.append(Gather(out, (v,), self.name("gather"), how, width, index))
        return out

    def tripled(self, v: int) -> int:
        """Every element three times, side by side: more channels."""
        x = self.values[v]
        numbers = tuple(c for c in range(x.channels) for _ in range(3))
        out = self.add((x.positions,), 3 * x.channels, x.time, self.peak[v], False)
        index = Index((x.positions,), (x.channels,), 0, numbers)
        self.operations.append(Gather(out, (v,), self.name("gather"), "sum", 1, index))
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


def moves(seed: int) -> Model:
    """Spikes moved inside their rows and in pieces: neighbours, a permutation, heads and back."""
    b, v = started(seed)
    v = b.tripled(b.tripled(b.one(v, b.total(v, b.neuron(v)))))
    p, c = b.values[v].positions, b.values[v].channels
    near = tuple(min(max(i + d, 0), c - 1) for i in range(c) for d in (-1, 0, 1))
    own = b.moved(v, p, b.one("max", "sum"), 3, Index((p,), (c,), 0, near))
    turned = tuple(b.one(np.roll(np.arange(c), 5), b.rng.permutation(c)).tolist())
    own = b.moved(own, p, "sum", 1, Index((p,), (c,), 0, turned))
    each = c // 3
    heads = b.moved(own, 3 * p, "sum", 1, Index((3, p), (each, c), 0, tuple(range(each))))
    back = tuple(h * p * each + i for h in range(3) for i in range(each))
    b.moved(heads, p, "sum", 1, Index((p,), (each,), 0, back))
    return b.finish()


def late(seed: int) -> Model:
    """Behind a sum over time: neurons that only compare."""
    b, v = started(seed)
    x = b.values[v]
    total = b.add(b.area[v], x.channels, False, 64 * b.peak[v], True)
    b.operations.append(TimeSum(total, (v,), b.name("sum")))
    b.neuron(total)
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


@pytest.mark.parametrize("pattern", [spike_sums, products, pools, streams, moves, late])
def test_pattern(pattern: Callable[[int], Model]) -> None:
    for seed in SEEDS:
        model = pattern(seed)
        everything, steps = list(range(len(model.program.values))), model.program.steps
        x, state = samples(model, seed, 3, steps), State.new(model, 3)
        want = NumpyExecutor(model).execute(x, steps, state, everything, 1)
        for level in levels():
            for keep in (kept_values(model), everything):
                agrees(model, level, keep, x, want, state)


@pytest.mark.parametrize("pattern", [spike_sums, streams])
def test_many_steps_are_run_in_blocks_of_positions(pattern: Callable[[int], Model]) -> None:
    """So many steps that the values of a region are kept for 4 of its positions at a time."""
    model, steps = pattern(1), 3000
    keep, x = [out.value for out in model.program.outputs], samples(model, 1, 2, steps)
    want = NumpyExecutor(model).execute(x, steps, None, keep, 1)
    for level in levels():
        executor = NativeExecutor(model, level, keep)
        for threads in (1, 3):
            for v, a in executor.execute(x, steps, None, keep, threads).items():
                np.testing.assert_array_equal(a, want[v], err_msg=f"{level}, {threads} threads")


class Windows(Builder):
    """Convolutions over 8 positions by windows of `size` that do not overlap."""

    size = 1

    def one(self, *items: Any) -> Any:
        return False if items == (True, False, False) else items[0]

    def window(self, area: tuple[int, ...], most: int = 3) -> Window:
        return Window(area, (self.size,), (self.size,), (0,), (0,), (1,))


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2), (8, 2)])
def test_equal_tap_tables_of_other_shapes(sizes: tuple[int, int]) -> None:
    """Such windows read 0, 1, 2 ... whatever their size: the tables have equal bytes."""
    b = Windows(1, 300_000)
    b.input = Input((8,), *b.axes(1, b.timed))
    v = b.add((8,), 1, b.timed, 255, False)
    b.operations.append(Quantize(v, (), "project1", identity(8)))
    spikes, outs = b.neuron(b.project(v, grid=True)), []
    for b.size in sizes:
        outs.append(b.project(spikes))
    program = Program(b.steps, b.input, tuple(b.values), tuple(b.operations), tuple(map(b.output, outs)))
    model = build(program, b.projections, b.neurons, b.mirrors)
    x = samples(model, 0, 2, 2)
    want = NumpyExecutor(model).execute(x, 2, None, [spikes, *outs], 1)
    assert 0 < want[spikes].mean() < 1
    for level in levels():
        executor = NativeExecutor(model, level, outs)
        executor.path = "event"
        for v, a in executor.execute(x, 2, None, outs, 1).items():
            np.testing.assert_array_equal(a, want[v], err_msg=level)


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

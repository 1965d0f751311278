"""Random models for the runtime: every operation, odd sizes, all widths, resets, roundings and leaks.

`models()` is a hypothesis strategy; `random_model(seed)` makes the same model for the same seed. `work`
bounds the multiplications of one operation on a sample at one step: small for oracles, large for engines.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from runtime.values import LARGE, SMALL, Values

from ptq4snn.network.index import Index, Window, compact
from ptq4snn.network.program import (
    Affine,
    Choice,
    Clip,
    Combine,
    Delay,
    Gather,
    Input,
    MatMul,
    Multiply,
    Neuron,
    Output,
    Pool,
    Program,
    Project,
    Quantize,
    TimeSum,
)
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.parameters import (
    Mirror,
    Model,
    ProjectionNumbers,
)

CHANNELS = (1, 2, 3, 4, 7, 8, 16, 17, 63, 64, 65, 130)


class Builder(Values):
    """Adds operations one by one."""

    def quantize(self) -> int:
        area = self.one((1,), (3,), (4, 3), (5, 5), (2, 3, 2))
        channels = self.one(1, 2, 3)
        size = prod(area) * channels
        shape = self.one((size,), (channels, *area), (*area, channels))
        self.input = Input(shape, *self.axes(len(shape), self.timed))
        order = self.rng.permutation(size) if self.one(True, False) else np.arange(size)
        if self.one(True, False, False):
            order[self.integers(0, size - 1, 1)] = -1  # padding of the input: a real 0
        v = self.add(area, channels, self.timed, 255, False)
        self.operations.append(Quantize(v, (), "project1", compact(order)))
        return v

    def project(self, v: int, grid: bool = False, head: bool = False) -> int:
        """A convolution or a Linear; with `head` the last one, behind a sum over time."""
        name, x = self.name("project"), self.values[v]
        window = None if self.one(True, False, False) else self.window(self.area[v])
        area = self.area[v] if window is None else window.out_size
        kernel = () if window is None else window.kernel
        groups = self.one(*(g for g in range(1, x.channels + 1) if x.channels % g == 0))
        load = max(1, prod(area) * prod(kernel) * x.channels // groups)
        able = [c for c in (*CHANNELS, groups, 2 * groups) if c % groups == 0 and c * load <= self.work]
        channels = self.one(*(able or [groups]))
        bits, shift = self.between(2, 8), self.between(0, 4)
        half = 2 ** (bits - 1)
        weight = self.integers(-half, half - 1, (channels, x.channels // groups, *kernel)).astype(np.int8)
        weight[self.integers(0, channels - 1, 1)] = -half  # the end of the range occurs
        peak = np.abs(weight.reshape(channels, -1).astype(float)).sum(1).max() * self.peak[v]
        bias = self.integers(-int(peak) - 1, int(peak) + 1, channels)
        role = "output" if head else self.one("pair", "pair", "stream", "chain")
        role = "pair" if self.summed[v] and not head else role  # a rescaled sum over time leaves every bound
        rescale, peak = self.rescale(channels, role, 4 * peak * 2**shift)
        self.projections[name] = ProjectionNumbers(
            weight, bits, bias, shift, self.summed[v] and self.one(True, False),
            self.grid(x.channels) if grid else None, rescale, self.rng.uniform(1e-3, 1e-1, channels), role,
        )  # fmt: skip
        out = self.add(area, channels, x.time, peak, self.summed[v])
        self.operations.append(Project(out, (v,), name, window, groups))
        self.source[out] = ("current", name)
        if head:
            self.heads.add(out)
        return out

    def neuron(self, v: int) -> int:
        v = self.below(v, LARGE)
        name, x = self.name("neuron"), self.values[v]
        size, once = x.positions * x.channels, self.summed[v]
        channels, channel = x.channels, None
        if self.one(True, False, False, False):
            channels = self.between(1, 5)
            channel = compact(self.integers(0, channels - 1, size))
        shape, element = self.state_order(x, size)
        factor, shift = self.one(1, 1, 2, 3), self.between(0, 4)
        top = self.peak[v] * factor * 2**shift
        self.neurons[name] = self.membrane(channels, shape, shift, top, once)
        carried = not once and self.neurons[name].most == 1 and self.one(True, False, False, False)
        if carried:
            lift = {"lift_m": self.integers(0, 2**10, channels), "lift_n": self.integers(0, 8, channels)}
            self.neurons[name] = replace(self.neurons[name], **lift)
        out = self.add(self.area[v], x.channels, not once, self.neurons[name].most, self.summed[v])
        potential = None
        if carried or self.one(True, False, False):
            potential = self.add(self.area[v], x.channels, not once, 2.0**31, self.summed[v])
            self.heads.add(potential)
            self.source[potential] = ("potential", name)
        self.operations.append(Neuron(out, (v,), name, factor, channel, element, once, potential, carried))
        return out

    def recurrent(self, v: int) -> int:
        """A neuron whose spikes (or these in another order) come back to it one step later."""
        if self.summed[v]:
            return self.neuron(v)
        x = self.below(v, SMALL)
        place, channels = len(self.operations), self.values[x].channels
        before = self.add(self.area[x], channels, True, 255, False)
        self.operations.append(Delay(before, (before,), self.name("delay")))
        back = before
        if self.one(True, False) and self.values[x].positions * channels**2 <= self.work:
            weight = self.integers(-4, 3, (channels, channels)).astype(np.int8)
            name, bias = self.name("project"), self.integers(-5, 5, channels)
            unit = self.rng.uniform(1e-3, 1e-1, channels)
            self.projections[name] = ProjectionNumbers(weight, 3, bias, 1, False, None, None, unit, "pair")
            back = self.add(self.area[x], channels, True, 255 * 8 * channels + 5, False)
            self.operations.append(Project(back, (before,), name, None, 1))
        total = self.like(x, self.peak[x] + self.peak[back], back)
        self.operations.append(Combine(total, (x, back), self.name("combine"), (1, 1), 0))
        source = spikes = self.neuron(total)
        if self.one(True, False):
            size = self.values[x].positions * channels
            source = self.add(self.area[x], channels, True, self.peak[spikes], False)
            index = compact(self.rng.permutation(size))
            self.operations.append(Gather(source, (spikes,), self.name("gather"), "sum", 1, index))
        self.operations[place] = replace(self.operations[place], inputs=(source,))
        return spikes

    def pool(self, v: int) -> int:
        v = self.below(v, LARGE)
        x, how, name = self.values[v], self.one("sum", "max"), self.name("pool")
        if self.one(True, False):
            window = self.window(self.area[v])
            if how == "max":  # no window may lie wholly in the padding
                kernel = window.kernel
                short = tuple(min(b, (k - 1) // 2) for b, k in zip(window.before, kernel, strict=True))
                ones = (1,) * len(kernel)
                fits = tuple(min(k, n) for k, n in zip(kernel, window.size, strict=True))
                short = tuple(min(b, (k - 1) // 2) for b, k in zip(short, fits, strict=True))
                window = Window(window.size, fits, window.stride, short, short, ones)
            out = self.add(window.out_size, x.channels, x.time, self.peak[v] * 27, self.summed[v])
            self.operations.append(Pool(out, (v,), name, how, window, None, None))
            return out
        if how == "sum" and self.one(True, False):
            axes = tuple(self.pool_axis(n) for n in self.area[v])
            area = tuple(len(a.taps) // a.kernel for a in axes)
            out = self.add(area, x.channels, x.time, self.peak[v] * 27**3, self.summed[v])
            self.operations.append(Pool(out, (v,), name, how, None, None, None, axes))
            return out
        positions, taps = self.between(1, 6), self.between(1, 4)
        at = self.integers(-1, x.positions - 1, positions * taps)
        weights = self.integers(-9, 9, positions * taps) if how == "sum" and self.one(True, False) else None
        out = self.add((positions,), x.channels, x.time, self.peak[v] * 36, self.summed[v])
        listed = None if weights is None else tuple(weights.tolist())
        self.operations.append(Pool(out, (v,), name, how, None, tuple(at.tolist()), listed))
        return out

    def gather(self, v: int) -> int:
        inputs = [self.below(i, LARGE) for i in {v, self.pick(self.summed[v])}]
        total = sum(self.values[i].positions * self.values[i].channels for i in inputs)
        area, channels = (
            ((self.between(1, 4),), (2, self.between(1, 3)))[self.between(0, 1)],
            self.between(1, 9),
        )
        width = self.one(1, 1, 2, 3)
        index = compact(self.integers(self.one(-1, 0), total - 1, prod(area) * channels * width))
        if self.one(True, False):
            index = self.strided((*area, channels * width), total)
        peak = width * max(self.peak[i] for i in inputs)
        time = any(self.values[i].time for i in inputs)
        out = self.add(area, channels, time, peak, self.summed[v])
        how = self.one("sum", "max")
        self.operations.append(Gather(out, tuple(inputs), self.name("gather"), how, width, index))
        return out

    def combine(self, v: int) -> int:
        other = self.partner(v)
        inputs = [self.below(i, LARGE) for i in ([v] if other is None else [v, other])]
        coefficients = tuple(self.integers(-5, 5, len(inputs)).tolist())
        constant = self.between(-100, 100)
        peak = sum(abs(c) * self.peak[i] for c, i in zip(coefficients, inputs, strict=True)) + abs(constant)
        out = self.like(inputs[0], peak, *inputs[1:])
        self.operations.append(Combine(out, tuple(inputs), self.name("combine"), coefficients, constant))
        return out

    def multiply(self, v: int) -> int:
        other = self.partner(v)
        a, b = self.below(v, SMALL), self.below(v if other is None else other, SMALL)
        out = self.like(a, self.peak[a] * self.peak[b], b)
        if not self.summed[v]:
            self.operations.append(Multiply(out, (a, b), self.name("multiply")))
        else:  # products of sums over time soon leave every bound
            self.operations.append(Choice(out, (a, b), self.name("choice"), "max", None))
        return out

    def affine(self, v: int) -> int:
        v, name, channels = self.below(v, LARGE), self.name("affine"), self.values[v].channels
        signs = 2 * self.integers(0, 1, channels) - 1
        self.mirrors[name] = Mirror(signs, self.integers(-1000, 1000, channels))
        out = self.like(v, self.peak[v] + 1000)
        self.operations.append(Affine(out, (v,), name))
        return out

    def clip(self, v: int) -> int:
        low, high = -self.between(0, 3000), self.between(0, 3000)
        out = self.like(v, min(self.peak[v], 3000))
        limits = self.one((low, high), (low, high), (None, high), (low, None))
        if None in limits:
            self.peak[out] = max(3000, self.peak[v])
        self.operations.append(Clip(out, (v,), self.name("clip"), *limits))
        return out

    def choice(self, v: int) -> int:
        how = self.one("max", "min", "gt", "ge", "lt", "le", "eq", "ne")
        other = self.partner(v) if self.one(True, False) else None
        name = self.name("choice")
        if other is None:
            constant = self.between(-3, 300)
            out = self.like(v, max(300, self.peak[v]) if how in ("max", "min") else 1)
            self.operations.append(Choice(out, (v,), name, how, constant))
            return out
        out = self.like(v, max(self.peak[v], self.peak[other]) if how in ("max", "min") else 1, other)
        self.operations.append(Choice(out, (v, other), name, how, None))
        return out

    def matmul(self, v: int) -> int:
        """v as the left matrix; the right one is gathered to a size that fits."""
        a = self.below(v, SMALL)
        x = self.values[a]
        groups = self.one(*(g for g in range(1, x.positions + 1) if x.positions % g == 0))
        columns = self.between(1, 5)
        b = self.below(self.pick(self.summed[v]), 1 if self.summed[v] else SMALL)
        size, total = groups * x.channels * columns, self.values[b].positions * self.values[b].channels
        right = self.add((groups * x.channels,), columns, self.values[b].time, self.peak[b], self.summed[v])
        index = compact(self.integers(0, total - 1, size))
        self.operations.append(Gather(right, (b,), self.name("gather"), "sum", 1, index))
        if self.summed[v]:
            return right
        peak = self.peak[a] * self.peak[b] * x.channels
        time = x.time or self.values[b].time
        out = self.add(self.area[a], columns, time, peak, False)
        self.operations.append(MatMul(out, (a, right), self.name("matmul"), groups))
        return out

    def time_sum(self) -> int:
        able = [v for v, x in enumerate(self.values) if x.time and v not in self.heads and not self.summed[v]]
        v = self.below(self.one(*able[-4:]), LARGE)
        out = self.add(self.area[v], self.values[v].channels, False, self.peak[v], True)
        self.operations.append(TimeSum(out, (v,), self.name("time_sum")))
        return out

    def output(self, v: int) -> Output:
        x = self.values[v]
        kind, name = self.source.get(v, ("count", None))
        if kind == "current" and self.one(True, False, False):
            kind, name = "count", None
        size = x.positions * x.channels
        if self.one(True, False):
            shape, index, axis = (x.positions, x.channels), Index((size,), (1,)), -1
        else:
            shape, axis = (x.channels, x.positions), -2
            index = Index((x.channels, x.positions), (1, x.channels))
        batch, time = self.axes(len(shape), x.time and self.one(True, True, False))  # or the last step alone
        scalings: tuple[Any, ...] = self.one((), (("steps",),), (("div", 3.0),), (("mul", 0.3), ("steps",)))
        dtype = self.one("float32", "float64")
        return Output(v, kind, name, axis, index, shape, batch, time, dtype, scalings)


KINDS = (
    "project", "project", "neuron", "neuron", "neuron", "pool", "gather", "combine", "multiply", "affine",
    "clip", "choice", "matmul", "recurrent",
)  # fmt: skip


def random_model(seed: int, operations: int = 6, work: int = 3000) -> Model:
    """A quantized input, a stem and a neuron, `operations` more, and what is summed over time behind them."""
    b = Builder(seed, work)
    b.neuron(b.project(b.quantize(), grid=True))
    for _ in range(operations):
        _extend(b, b.pick())
    if b.one(True, True, False):
        v = b.time_sum()
        for _ in range(b.between(0, 2)):
            _extend(b, b.below(b.pick(summed=True), SMALL))
        b.project(b.below(v, SMALL), head=True)
    outputs = {len(b.values) - 1}
    if b.one(True, True, False):
        outputs |= {b.between(0, len(b.values) - 1), b.one(*b.source)}
    program = Program(
        b.steps, b.input, tuple(b.values), tuple(b.operations), tuple(b.output(v) for v in sorted(outputs))
    )
    return build(program, b.projections, b.neurons, b.mirrors)


def finishing(model: Model, how: str, axis: int) -> Model:
    """The model with outputs that end with a softmax, a log-softmax or an argmax."""
    outputs = tuple(replace(out, then=((how, axis),)) for out in model.program.outputs)
    return replace(model, program=replace(model.program, outputs=outputs))


def placed(model: Model, seed: int) -> Model:
    """The model with projections that have a bias for each position; those that read the input read a
    normalised one, and counts are worth something else in each channel."""
    rng, projections = np.random.default_rng(seed), dict(model.projections)
    for op in model.program.operations:
        n = projections[op.name] if isinstance(op, Project) else None
        if n is not None and not n.over_time and n.bias.ndim == 1:
            more = rng.integers(-50, 50, (model.program.values[op.output].positions, len(n.bias)))
            grid = n.input
            if grid is not None:
                grid = replace(grid, behind=grid.zeros + rng.integers(-99999, 99999, len(grid.zeros)))
            projections[op.name] = replace(n, bias=n.bias + more, input=grid)
    outputs = tuple(
        replace(out, scales=tuple(rng.uniform(0.2, 2, out.shape[out.axis]).tolist()))
        if out.kind == "count"
        else out
        for out in model.program.outputs
    )
    program = replace(model.program, outputs=outputs)
    return build(program, projections, dict(model.neurons), dict(model.mirrors))


def _extend(b: Builder, v: int) -> None:
    kind = b.one(*KINDS)
    if kind == "project":
        v = b.below(v, SMALL)
    getattr(b, kind)(v)


def models(operations: int = 6, work: int = 3000) -> st.SearchStrategy[Model]:
    return st.builds(random_model, st.integers(0, 2**32 - 1), st.integers(0, operations), st.just(work))


def random_input(model: Model, seed: int, batch: int, steps: int | None = None) -> np.ndarray[Any, Any]:
    """Samples with the axes of the model's input; some lie outside the range of the input grid."""
    rng, x = np.random.default_rng(seed), model.program.input
    shape = list(x.shape)
    places = [(x.batch_axis, batch)]
    if x.time_axis is not None:
        places.append((x.time_axis, model.program.steps if steps is None else steps))
    for axis, n in sorted(places):
        shape.insert(axis, n)
    return rng.uniform(-3, 5, shape).astype(np.float32)

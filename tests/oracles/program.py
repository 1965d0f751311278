"""A slow and obvious interpreter of integer programs: NumPy, int64, one step after the other.

It reads the program, the plan and the integers, and shares no arithmetic with the library.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.index import Window
from ptq4snn.network.plan import Plan
from ptq4snn.network.program import Operation, Output, Program

Array = NDArray[Any]


def half_even(a: Array, n: Array) -> Array:
    """a / 2^n, rounded, halves to even."""
    down = a >> n
    rest = a - (down << n)
    half = np.where(n > 0, 1 << np.maximum(n - 1, 0), 1)
    up = (n > 0) & ((rest > half) | ((rest == half) & (down % 2 == 1)))
    return down + up


def taps_of(w: Window) -> list[list[int]]:
    """Positions that every output position reads, -1 outside, by counting."""
    rows = []
    for out in product(*map(range, w.out_size)):
        row = []
        for k in product(*map(range, w.kernel)):
            at = [
                o * s - b + i * d
                for o, s, b, i, d in zip(out, w.stride, w.before, k, w.dilation, strict=True)
            ]
            inside = all(0 <= a < n for a, n in zip(at, w.size, strict=True))
            row.append(int(np.ravel_multi_index(at, w.size)) if inside else -1)
        rows.append(row)
    return rows


def by_axes(axes: Any) -> tuple[list[list[int]], Array]:
    """Taps and weights of a pool: every combination of one tap of each axis."""
    outs = product(*(range(len(a.taps) // a.kernel) for a in axes))
    rows, weights = [], []
    for out in outs:
        row, weight = [], []
        for ks in product(*(range(a.kernel) for a in axes)):
            at, by = 0, 1
            for a, o, k in zip(axes, out, ks, strict=True):
                at, by = at * a.size + a.taps[o * a.kernel + k], by * a.weights[o * a.kernel + k]
            row.append(at)
            weight.append(by)
        rows.append(row)
        weights.append(weight)
    return rows, np.array(weights)


class Interpreter:
    def __init__(self, program: Program, plan: Plan, integers: dict[str, tuple[Array, Array]]) -> None:
        self.program, self.plan = program, plan
        self.integers = {n: (w.astype(np.int64), b.astype(np.int64)) for n, (w, b) in integers.items()}
        self.values: dict[int, Array] = {}
        self.states: dict[str, Array] = {}  # [T, B, elements of the state as the model numbers them]
        self.steps = program.steps

    def __call__(self, x: Array, steps: int | None = None) -> list[Array]:
        """The outputs of a batch; `steps` of a still image."""
        given = self.program.input
        order = [a for a in (given.time_axis, given.batch_axis) if a is not None]
        order += [d for d in range(x.ndim) if d not in order]
        frames = x.transpose(order).astype(np.float64)
        self.steps = frames.shape[0] if given.time_axis is not None else steps or self.program.steps
        lead = 2 if given.time_axis is not None else 1
        self.frames = frames.reshape(*frames.shape[:lead], -1)
        for o in self.program.operations:
            value = self.program.values[o.output]
            made = getattr(self, o.kind)(o, *(self.values[i] for i in o.inputs))
            assert made.ndim == 3 + value.time and made.shape[-2:] == (value.positions, value.channels), o
            assert not value.time or made.shape[0] == self.steps, o
            assert made.dtype == np.int64, o
            self.values[o.output] = made
        return [self.output(o) for o in self.program.outputs]

    def shaped(self, o: Operation, x: Array) -> Array:
        value = self.program.values[o.output]
        return x.reshape(*x.shape[:-1], value.positions, value.channels)

    def quantize(self, o: Any) -> Array:
        plan = self.plan.projections[o.name].input
        assert plan is not None
        index = o.index.array()
        x = self.shaped(o, np.where(index < 0, 0.0, self.frames[..., index]))
        p = np.rint(x * (1 / np.array(plan.scales)) + np.array(plan.zeros) / 2**16)
        return np.clip(p, 0, 255).astype(np.int64)

    def project(self, o: Any, x: Array) -> Array:
        plan, (weight, bias) = self.plan.projections[o.name], self.integers[o.name]
        cout, cin = weight.shape[:2]
        weight = weight.reshape(cout, cin, -1)
        taps = taps_of(o.window) if o.window is not None else [[p] for p in range(x.shape[-2])]
        zeros = np.array(plan.input.zeros if plan.input else [0], dtype=np.int64)
        zeros = np.broadcast_to(zeros, (x.shape[-1],))
        y = np.zeros((*x.shape[:-2], len(taps), cout), dtype=np.int64)
        for p, row in enumerate(taps):
            offset = np.zeros(cout, dtype=np.int64)
            for k, at in enumerate(row):
                if at < 0:
                    continue
                for g in range(o.groups):
                    outs = slice(g * cout // o.groups, (g + 1) * cout // o.groups)
                    ins = slice(g * cin, (g + 1) * cin)
                    y[..., p, outs] += x[..., at, ins] @ weight[outs, :, k].T
                    offset[outs] += weight[outs, :, k] @ zeros[ins]
            shifted = (bias << 16) - (offset << plan.shift)
            y[..., p, :] = (y[..., p, :] << plan.shift) + half_even(shifted, np.full(cout, 16))
        if plan.over_time and self.steps != self.plan.steps and plan.role != "output":
            y = np.rint((y - bias) * (self.plan.steps / self.steps) + bias).astype(np.int64)
        if plan.rescale is not None:
            m, n = np.array(plan.rescale.multipliers), np.array(plan.rescale.shifts)
            half = 1 << (plan.rescale.bits - 1)
            y = np.clip(half_even(y * m, np.broadcast_to(n, y.shape)), -half, half - 1)
        return y

    def neuron(self, o: Any, x: Array) -> Array:
        plan = self.plan.neurons[o.name]
        value = self.program.values[o.output]
        count = value.positions * value.channels
        channel = np.arange(count) % value.channels if o.channel is None else o.channel.array()
        element = np.arange(count) if o.element is None else o.element.array()
        assert sorted(element) == list(range(count))
        x = x.reshape(*x.shape[:-2], count) * o.factor
        x = x << (0 if plan.emits_units else plan.shift)
        if plan.over_time and self.steps != self.plan.steps:
            x = np.rint(x * (self.plan.steps / self.steps)).astype(np.int64)
        steps = 1 if o.once else self.steps
        sequence = x if x.ndim == 3 else np.broadcast_to(x, (steps, *x.shape))
        v = np.zeros(sequence.shape[1:], dtype=np.int64)
        spikes, potentials, states = [], [], []
        for t in range(steps):
            a = sequence[t] + half_even(v * _each(plan.charge, 0, channel), _each(plan.charge, 1, channel))
            theta = np.array(plan.theta).astype(np.int64)[channel]
            s = sum((a >= k * theta).astype(np.int64) for k in range(1, plan.most + 1))  # thresholds that fit
            rest = {
                "hard": a * (s == 0),
                "soft": a - np.array(plan.rho).astype(np.int64)[channel] * s,
                "none": a,
            }
            m, n = _each(plan.settle, 0, channel), _each(plan.settle, 1, channel)
            after = rest[plan.reset] * m
            q = half_even(after, n) if plan.rounding == "even" else _dithered(after, n, element, t)
            zero, half = np.array(plan.zero)[channel], 1 << (np.array(plan.bits)[channel] - 1)
            v = np.clip(q, zero - half, zero + half - 1)
            spikes.append(s)
            potentials.append(a)
            states.append(v)
        order = np.argsort(element)
        self.states[o.name] = np.stack(states)[..., order]
        if o.potential is not None:
            made = np.stack(potentials)
            self.values[o.potential] = self.shaped(o, made[0] if o.once else made)
        return self.shaped(o, spikes[0] if o.once else np.stack(spikes))

    def pool(self, o: Any, x: Array) -> Array:
        positions = self.program.values[o.output].positions
        if o.axes:
            taps, weights = by_axes(o.axes)
        else:
            taps = taps_of(o.window) if o.window else np.array(o.taps).reshape(positions, -1).tolist()
            ones = np.ones((positions, len(taps[0])))
            weights = np.array(o.weights).reshape(positions, -1) if o.weights else ones
        rows = []
        for p, row in enumerate(taps):
            terms = [x[..., at, :] * int(weights[p, k]) for k, at in enumerate(row) if at >= 0]
            if o.how == "max" and o.window is None and min(row) < 0:
                terms.append(np.zeros_like(terms[0]))
            rows.append(sum(terms) if o.how == "sum" else np.max(terms, 0))
        return np.stack(rows, -2)

    def gather(self, o: Any, *xs: Array) -> Array:
        flat = np.concatenate([x.reshape(*x.shape[:-2], -1) for x in xs], -1)
        index = o.index.array()
        picked = np.where(index < 0, 0, flat[..., index]).reshape(*flat.shape[:-1], -1, o.width)
        return self.shaped(o, picked.sum(-1) if o.how == "sum" else picked.max(-1))

    def combine(self, o: Any, *xs: Array) -> Array:
        total: Any = o.constant
        for x, c in zip(xs, o.coefficients, strict=True):
            total = total + c * x
        return np.asarray(total)

    def multiply(self, o: Any, a: Array, b: Array) -> Array:
        return a * b

    def affine(self, o: Any, x: Array) -> Array:
        plan = self.plan.mirrors[o.name]
        return x * np.array(plan.signs) + np.array(plan.shifts).astype(np.int64)

    def clip(self, o: Any, x: Array) -> Array:
        return np.clip(x, o.low, o.high)

    def choice(self, o: Any, *xs: Array) -> Array:
        a, b = xs if o.constant is None else (xs[0], np.int64(o.constant))
        how = {
            "max": np.maximum, "min": np.minimum, "gt": np.greater, "ge": np.greater_equal, "lt": np.less,
            "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
        }  # fmt: skip
        return how[o.how](a, b).astype(np.int64)

    def matmul(self, o: Any, a: Array, b: Array) -> Array:
        left = a.reshape(*a.shape[:-2], o.groups, -1, a.shape[-1])
        right = b.reshape(*b.shape[:-2], o.groups, -1, b.shape[-1])
        return self.shaped(
            o, (left @ right).reshape(*np.broadcast_shapes(left.shape[:-3], right.shape[:-3]), -1)
        )

    def time_sum(self, o: Any, x: Array) -> Array:
        return x.sum(0)

    def output(self, o: Output) -> Array:
        x = self.values[o.value]
        if self.program.values[o.value].time and o.time_axis is None:
            x = x[-1]
        x = x.reshape(*x.shape[:-2], -1)[..., o.index.array()]
        x = x.reshape(*x.shape[:-1], *o.shape)
        dtype: Any = np.dtype(o.dtype)
        y = x.astype(dtype)
        if o.kind == "current":
            y = self.at_other_steps(o, x).astype(dtype)
        for s in o.scalings:
            by = dtype.type(self.steps if s[0] == "steps" else s[1])  # type: ignore[misc]
            y = y * by if s[0] == "mul" else y / by
        y = self.worth(o, y, x.ndim - len(o.shape))
        lead = [a for a in (o.time_axis, o.batch_axis) if a is not None]
        order = list(range(len(lead), y.ndim))
        for axis, at in sorted(zip(lead, range(len(lead)), strict=True)):
            order.insert(axis, at)
        return y.transpose(order)

    def at_other_steps(self, o: Output, x: Array) -> Array:
        """An output projection behind a mean over time keeps its bias whatever T is."""
        plan = self.plan.projections[o.name or ""]
        if not (plan.over_time and plan.role == "output" and self.steps != self.plan.steps):
            return x
        bias = self.integers[o.name or ""][1].reshape(-1, *[1] * (-o.axis - 1))
        return (x - bias) * (self.plan.steps / self.steps) + bias

    def worth(self, o: Output, y: Array, lead: int) -> Array:
        if o.kind == "count":
            return y
        if o.kind == "current":
            p = self.plan.projections[o.name or ""]
            unit = np.array(p.rescale.scales if p.rescale else p.lattice) * (
                1 if p.rescale else 2.0**-p.shift
            )
            return (y.astype(np.float64) * unit.reshape(-1, *[1] * (-o.axis - 1))).astype(np.float32)
        n = self.plan.neurons[o.name or ""]
        shape = [s if d in n.layout.dims else 1 for d, s in enumerate(n.layout.shape)]
        return (y.astype(np.float64) * np.array(n.unit).reshape(shape) + n.v_rest).astype(np.float32)


def _each(pairs: Any, which: int, channel: Array) -> Array:
    return np.array([p[which] for p in pairs], dtype=np.int64)[channel]


def _dithered(a: Array, n: Array, element: Array, t: int) -> Array:
    reverse = int(f"{t % 16:04b}"[::-1], 2)
    d = ((40503 * element + (reverse << 12) + 2048) % 65536) >> (16 - n)
    return (a + d) >> n

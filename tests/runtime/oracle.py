"""The semantics of a program, element by element, with Python's own integers: slow and obvious."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import floor, prod
from typing import Any

from oracles.program import by_axes

from ptq4snn.network.program import Neuron, Pool, Project
from ptq4snn.runtime.parameters import Model

Sample = list[int]  # one sample at one step, position by position


def rshift(a: int, n: int) -> int:
    """a / 2^n, halves to even: what round() does with exact fractions."""
    return round(Fraction(a, 2**n))


class Oracle:
    """Runs `steps` steps of x[t][b] (lists of floats), t = 0 alone for a still image."""

    def __init__(self, model: Model, x: Any, steps: int) -> None:
        self.model, self.x, self.steps, self.batch = model, x, steps, len(x[0])
        self.values: dict[int, list[list[Sample]]] = {}  # [t][b]
        self.states: dict[str, list[Sample]] = {}  # [b], Vq
        goes_round = any(op.kind == "delay" for op in model.program.operations)
        for _ in range(steps if goes_round else 1):  # each pass makes one more step of what goes round right
            for op in model.program.operations:
                self.op = op
                getattr(self, op.kind)(op)

    def shape(self, v: int) -> tuple[int, int]:
        return self.model.program.values[v].positions, self.model.program.values[v].channels

    def at(self, v: int, t: int, b: int) -> Sample:
        return self.values[v][t if self.model.program.values[v].time else 0][b]

    def each(self, op: Any, f: Any) -> None:
        """Element by element: f(inputs of this sample, position, channel)."""
        positions, channels = self.shape(op.output)
        times = range(self.steps) if self.model.program.values[op.output].time else range(1)
        self.values[op.output] = [
            [
                [
                    f([self.at(v, t, b) for v in op.inputs], p, c)
                    for p, c in product(range(positions), range(channels))
                ]
                for b in range(self.batch)
            ]
            for t in times
        ]

    def broadcast(self, op: Any, x: list[Sample], i: int, p: int, c: int) -> int:
        positions, channels = self.shape(op.inputs[i])
        return x[i][(0 if positions == 1 else p) * channels + c]

    def quantize(self, op: Any) -> None:
        grid, index = self.model.projections[op.name].input, op.index.array().tolist()
        assert grid is not None
        channels = self.shape(op.output)[1]

        def pixel(sample: Any, e: int) -> int:
            c = 0 if len(grid.scales) == 1 else e % channels
            y = (float(sample[index[e]]) if index[e] >= 0 else 0.0) * (1 / float(grid.scales[c])) + int(
                grid.zeros[c]
            ) / 65536
            return min(255, max(0, round(y)))

        self.values[op.output] = [
            [[pixel(s, e) for e in range(len(index))] for s in frame] for frame in self.x
        ]

    def taps(self, op: Project | Pool) -> list[list[int]]:
        """Input position of every tap of every output position, -1 outside."""
        w = op.window
        if w is None:
            return [[p] for p in range(self.shape(op.output)[0])]
        out = []
        for place in product(*map(range, w.out_size)):
            row = []
            for tap in product(*map(range, w.kernel)):
                at = [
                    o * s - b + k * d
                    for o, s, b, k, d in zip(place, w.stride, w.before, tap, w.dilation, strict=True)
                ]
                inside = all(0 <= a < n for a, n in zip(at, w.size, strict=True))
                number = 0
                for a, n in zip(at, w.size, strict=True):
                    number = number * n + a
                row.append(number if inside else -1)
            out.append(row)
        return out

    def project(self, op: Project) -> None:
        n, taps = self.model.projections[op.name], self.taps(op)
        cin, cout = self.shape(op.inputs[0])[1], self.shape(op.output)[1]
        weight = n.weight.reshape(cout, -1, prod(n.weight.shape[2:])).tolist()  # [Cout, Cin / G, K]
        part = cin // op.groups
        zeros = (
            [0] * cin
            if n.input is None
            else [int(n.input.inside[i % len(n.input.inside)]) for i in range(cin)]
        )

        def one(x: list[Sample], p: int, c: int) -> int:
            total = zero = 0
            base = c // (cout // op.groups) * part
            for k, at in enumerate(taps[p]):
                for i in range(part) if at >= 0 else ():
                    total += weight[c][i][k] * x[0][at * cin + base + i]
                    zero += weight[c][i][k] * zeros[base + i]
            bias = int(n.bias[c] if n.bias.ndim == 1 else n.bias[p, c])
            y = (total << n.shift) + round(bias - Fraction(zero << n.shift, 65536))
            if n.over_time and n.role != "output" and self.steps != self.model.program.steps:
                y = round((float(y) - float(bias)) * (self.model.program.steps / self.steps) + float(bias))
            if n.rescale is not None:
                half = 2 ** (n.rescale.bits - 1)
                y = rshift(y * int(n.rescale.multipliers[c]), int(n.rescale.shifts[c]))
                y = min(half - 1, max(-half, y))
            return y

        self.each(op, one)

    def neuron(self, op: Neuron) -> None:
        n, (positions, channels) = self.model.neurons[op.name], self.shape(op.output)
        size = positions * channels
        channel = [e % channels for e in range(size)] if op.channel is None else op.channel.array().tolist()
        element = list(range(size)) if op.element is None else op.element.array().tolist()
        v = [[0] * size for _ in range(self.batch)]
        spikes, potentials = [], []
        for t in range(1 if op.once else self.steps):
            rows: list[tuple[Sample, Sample]] = []
            for b in range(self.batch):
                x = [self.current(i, op) for i in self.at(op.inputs[0], t, b)]
                done = [self.membrane(n, x[e], v[b][e], channel[e], element[e], t) for e in range(size)]
                if op.carried:
                    lift = [(int(n.lift_m[c]), int(n.lift_n[c])) for c in channel]
                    done = [
                        (d[0], rshift(old * m, s), d[2])
                        for d, old, (m, s) in zip(done, v[b], lift, strict=True)
                    ]
                v[b] = [d[2] for d in done]
                rows.append(([d[0] for d in done], [d[1] for d in done]))
            spikes.append([r[0] for r in rows])
            potentials.append([r[1] for r in rows])
        self.values[op.output], self.states[op.name] = spikes, v
        if op.potential is not None:
            self.values[op.potential] = potentials

    def delay(self, op: Any) -> None:
        at_rest = [[0] * prod(self.shape(op.output)) for _ in range(self.batch)]
        made = self.values.get(op.inputs[0], [at_rest] * self.steps)
        self.values[op.output] = [at_rest, *made[:-1]]

    def current(self, x: int, op: Neuron) -> int:
        n, steps = self.model.neurons[op.name], self.model.program.steps
        y = (x * op.factor) << n.shift
        if n.over_time and self.steps != steps:
            y = round(float(y) * (steps / self.steps))
        return y

    def membrane(self, n: Any, x: int, v: int, c: int, element: int, t: int) -> tuple[int, int, int]:
        """Spike, potential and next state."""
        a = x + rshift(v * int(n.charge_m[c]), int(n.charge_n[c]))
        s = int(a >= int(n.theta[c])) if n.most == 1 else min(n.most, max(0, a // int(n.theta[c])))
        kept = a
        if n.reset == "hard" and s:
            kept = 0
        if n.reset == "soft":
            kept = a - s * int(n.rho[c])
        m, shift = int(n.settle_m[c]), int(n.settle_n[c])
        if n.rounding == "dither":
            reverse = sum(((t >> i) & 1) << (3 - i) for i in range(4))
            phase = (40503 * element + (reverse << 12) + 2048) % 65536
            q = floor(Fraction(kept + (phase >> (16 - shift)), 2**shift))
        else:
            q = rshift(kept * m, shift)
        return s, a, min(int(n.high[c]), max(int(n.low[c]), q))

    def pool(self, op: Pool) -> None:
        channels = self.shape(op.output)[1]
        listed = op.weights
        if op.window is not None:
            taps = self.taps(op)
        elif op.axes is not None:
            taps, by = by_axes(op.axes)
            listed = tuple(int(w) for w in by.reshape(-1))
        else:
            assert op.taps is not None
            width = len(op.taps) // self.shape(op.output)[0]
            taps = [list(op.taps[i : i + width]) for i in range(0, len(op.taps), width)]

        def one(x: list[Sample], p: int, c: int) -> int:
            found = [None if at < 0 else x[0][at * channels + c] for at in taps[p]]
            if op.how == "max":
                outside = [] if op.window is not None else [0] * found.count(None)
                return max([f for f in found if f is not None] + outside)
            start = p * len(taps[p])
            weights = [1] * len(found) if listed is None else listed[start : start + len(found)]
            return sum(w * f for w, f in zip(weights, found, strict=True) if f is not None)

        self.each(op, one)

    def gather(self, op: Any) -> None:
        index, channels = op.index.array().tolist(), self.shape(op.output)[1]

        def one(x: list[Sample], p: int, c: int) -> int:
            ends = [i for part in x for i in part]
            start = (p * channels + c) * op.width
            found = [0 if at < 0 else ends[at] for at in index[start : start + op.width]]
            return sum(found) if op.how == "sum" else max(found)

        self.each(op, one)

    def combine(self, op: Any) -> None:
        def one(x: list[Sample], p: int, c: int) -> int:
            terms = (k * self.broadcast(op, x, i, p, c) for i, k in enumerate(op.coefficients))
            return op.constant + sum(terms)

        self.each(op, one)

    def multiply(self, op: Any) -> None:
        self.each(op, lambda x, p, c: self.broadcast(op, x, 0, p, c) * self.broadcast(op, x, 1, p, c))

    def affine(self, op: Any) -> None:
        m = self.model.mirrors[op.name]
        self.each(op, lambda x, p, c: int(m.signs[c]) * self.broadcast(op, x, 0, p, c) + int(m.shifts[c]))

    def clip(self, op: Any) -> None:
        def one(x: list[Sample], p: int, c: int) -> int:
            y = self.broadcast(op, x, 0, p, c)
            y = y if op.low is None else max(op.low, y)
            return y if op.high is None else min(op.high, y)

        self.each(op, one)

    def choice(self, op: Any) -> None:
        kinds: dict[str, Any] = {
            "max": max, "min": min, "gt": int.__gt__, "ge": int.__ge__, "lt": int.__lt__, "le": int.__le__,
            "eq": int.__eq__, "ne": int.__ne__,
        }  # fmt: skip
        choose = kinds[op.how]

        def one(x: list[Sample], p: int, c: int) -> int:
            b = op.constant if op.constant is not None else self.broadcast(op, x, 1, p, c)
            return int(choose(self.broadcast(op, x, 0, p, c), b))

        self.each(op, one)

    def matmul(self, op: Any) -> None:
        (positions, inner), columns = self.shape(op.inputs[0]), self.shape(op.output)[1]
        rows = positions // op.groups

        def one(x: list[Sample], p: int, c: int) -> int:
            g = p // rows
            return sum(x[0][p * inner + i] * x[1][(g * inner + i) * columns + c] for i in range(inner))

        self.each(op, one)

    def time_sum(self, op: Any) -> None:
        frames = self.values[op.inputs[0]]
        size = len(frames[0][0])
        self.values[op.output] = [
            [[sum(f[b][e] for f in frames) for e in range(size)] for b in range(self.batch)]
        ]

"""The network of a bundle as one would write it by hand: float C, or int8 C with 32-bit states, dense loops.

In the style of the exporter: one function an operation, a projection and its neuron in one loop, the values
of a step in one arena by lifetimes, states in one struct. Weights, activations and states are arrays of one
type each:

    float   float weights, activations and states
    int8    int8 weights and activations, int32 sums and states, which are not quantized
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptq4snn.export.c99.arena import lay_out
from ptq4snn.export.c99.context import taps
from ptq4snn.export.c99.plan import Group, plan_of
from ptq4snn.export.c99.text import block, initializer, loop
from ptq4snn.network import program as ops
from ptq4snn.runtime.parameters import Model

WIDTH = {"float": 4, "int8": 1}


@dataclass
class Dense:
    """The text of one network; `kind` is "float" or "int8"."""

    model: Model
    kind: str

    def __post_init__(self) -> None:
        self.plan = plan_of(self.model)
        for place in self.plan.places.values():
            if place.kind in ("packed", "whole"):
                place.kind, place.type = "whole", "int32_t" if self.kind == "float" else "int8_t"
        lay_out(self.plan, self.model.program)
        self.data: list[str] = []
        self.state: list[str] = []

    @property
    def real(self) -> bool:
        return self.kind == "float"

    @property
    def sum(self) -> str:
        return "float" if self.real else "int32_t"

    def array(self, name: str, values: Any, kind: str) -> str:
        flat = np.asarray(values).reshape(-1)
        text = [
            f"{float(x):.9g}f"
            if "." in f"{float(x):.9g}" or "e" in f"{float(x):.9g}"
            else f"{float(x):.9g}.0f"
            for x in flat
        ]
        text = text if kind == "float" else [str(int(x)) for x in flat]
        self.data += [f"static const {kind} {name}[{len(flat)}] = {{", *initializer(text), "};"]
        return name

    def source(self) -> str:
        calls, functions = [], []
        for group in self.plan.groups:
            body = self.group(group)
            if body:
                functions += [f"static void op{group.root}(net_state *s, net_arena *a, const input *in)", "{"]
                functions += [*block(["(void)s; (void)a; (void)in;", *body]), "}", ""]
                calls.append(f"op{group.root}(s, a, in);")
        return "\n".join(
            [
                *self.data,
                "",
                *self.dot(),
                *functions,
                "void net_step(net_state *s, net_arena *a, const input *in)",
                "{",
                *block(calls),
                "}",
                "",
            ]
        )

    def dot(self) -> list[str]:
        """The innermost loop, which a compiler must not weigh against the registers around it."""
        kind = "float" if self.real else "int8_t"
        return [
            f"static __attribute__((noinline)) {self.sum} dot(const {kind} *w, const {kind} *x, uint32_t n)",
            "{",
            f"  {self.sum} y = 0;",
            "  for (uint32_t i = 0; i < n; i++) {",
            f"    y += ({self.sum})w[i] * ({self.sum})x[i];",
            "  }",
            "  return y;",
            "}",
            "",
        ]

    def header(self) -> str:
        value = "float" if self.real else "int8_t"
        size = max(1, self.plan.arena // WIDTH[self.kind])
        lines = [
            "#include <stdint.h>",
            "#include <string.h>",
            f"typedef {'float' if self.real else 'uint8_t'} input;",
        ]
        lines += [
            f"typedef struct {{ {value} v[{size}]; }} net_arena;",
            "typedef struct {",
            *block(self.state),
            "} net_state;",
        ]
        return "\n".join([*lines, "void net_step(net_state *s, net_arena *a, const input *in);", ""])

    def read(self, v: int, p: str, c: str) -> str:
        place = self.plan.places[v]
        if place.kind == "input":
            return f"in[{p} * {place.value.channels} + {c}]"
        begin = place.offset // WIDTH[self.kind]
        return f"a->v[{begin} + {p} * {place.value.channels} + {c}]"

    def group(self, group: Group) -> list[str]:
        """A projection with what stands behind it, or a single operation."""
        members = [self.model.program.operations[i] for i in group.members]
        root, value = members[-1], self.model.program.values[members[-1].output]
        if isinstance(root, ops.Quantize):
            return []
        first = members[0]
        each = (
            self.first(first)
            if not isinstance(first, ops.Neuron)
            else [f"{self.sum} y = {self.read(first.inputs[0], 'p', 'c')};"]
        )
        body = loop("c", value.channels, [*each, *self.last(root)])
        window = getattr(first, "window", None)
        if window is None:
            return loop("p", value.positions, body)
        lines = [*body, "p++;"]
        for d in reversed(range(len(window.out_size))):
            lines = loop(f"o{d}", window.out_size[d], lines)
        return ["uint32_t p = 0;", *lines]

    def first(self, op: ops.Operation) -> list[str]:
        """y of channel c at position p."""
        if isinstance(op, ops.Combine):
            return [f"{self.sum} y = ({self.sum})({' + '.join(self.read(v, 'p', 'c') for v in op.inputs)});"]
        if isinstance(op, ops.Pool) and op.window is not None:
            return [f"{self.sum} y = 0;", *taps(op.window, [f"y += {self.read(op.inputs[0], 'q', 'c')};"])]
        assert isinstance(op, ops.Project)
        return self.project(op)

    def project(self, op: ops.Project) -> list[str]:
        n = self.model.projections[op.name]
        w = n.weight.reshape(*n.weight.shape[:2], -1).transpose(0, 2, 1).astype(np.float64)  # [Cout, K, Cin]
        inside, count = w.shape[2], w.shape[1]
        zero = ""
        if self.real:
            by = n.unit * 2.0**n.shift
            w = w * by[:, None, None] / (1 if n.input is None else n.input.scales)
        elif n.input is not None:
            zeros = np.broadcast_to(np.rint(n.input.zeros / 2**16), inside)
            zero = f" - {self.array(f'z{op.output}', zeros, 'int16_t')}[i]"
        symbol = self.array(f"w{op.output}", w, "float" if self.real else "int8_t")
        bias = self.array(f"b{op.output}", n.bias * (n.unit if self.real else 1), self.sum)
        kind = "float" if self.real else "int8_t"
        given = "input" if self.plan.places[op.inputs[0]].kind == "input" else kind
        each = loop("i", inside, [f"y += ({self.sum})w[i] * (({self.sum})x[i]{zero});"])
        inner = [
            f"const {kind} *w = &{symbol}[(c * {count} + k) * {inside}];",
            f"const {given} *x = &{self.read(op.inputs[0], 'q', '0')};",
            *([f"y += dot(w, x, {inside});"] if given == kind and not zero else each),
        ]
        around = (
            taps(op.window, inner)
            if op.window is not None
            else ["{", "  const uint32_t q = p, k = 0;", *block(inner), "}"]
        )
        last = f"y += {bias}[c];" if self.real else f"y = y * {2**n.shift} + {bias}[c];"
        return [f"{self.sum} y = 0;", *around, last]

    def last(self, op: ops.Operation) -> list[str]:
        """What becomes of y."""
        value = self.model.program.values[op.output]
        size = value.positions * value.channels
        if isinstance(op, ops.TimeSum):
            self.state.append(f"{self.sum} t{op.output}[{size}];")
            return [f"s->t{op.output}[p * {value.channels} + c] += y;"]
        if not isinstance(op, ops.Neuron):
            return [f"{self.read(op.output, 'p', 'c')} = ({'float' if self.real else 'int8_t'})y;"]
        n = self.model.neurons[op.name]
        leak = float((n.charge_m * 2.0**-n.charge_n * n.settle_m * 2.0**-n.settle_n)[0])
        assert n.reset == "hard"
        self.state.append(f"{self.sum} n{op.output}[{size}];")
        theta = self.array(f"h{op.output}", n.theta * (n.unit if self.real else 1), self.sum)
        left = f"* {leak:.9g}f" if self.real else ">> 1"
        assert self.real or leak == 0.5
        state = f"s->n{op.output}[p * {value.channels} + c]"
        spike = self.read(op.output, "p", "c")
        return [
            f"y += {state} {left};",
            f"if (y >= {theta}[c]) {{",
            f"  {spike} = 1;",
            f"  {state} = 0;",
            "} else {",
            f"  {spike} = 0;",
            f"  {state} = y;",
            "}",
        ]


def head_of(model: Model) -> int:
    """The value of the sum over time that is the output."""
    return next(op.output for op in model.program.operations if isinstance(op, ops.TimeSum))

"""The outputs: integers in the model's own order and, for those who have floats, what they are worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.finishing import finish_lines
from ptq4snn.export.c99.text import block, c_type, given, initializer, loop
from ptq4snn.network.program import Neuron, Output
from ptq4snn.runtime.decode import late_heads
from ptq4snn.runtime.parameters import Model, Reals

__all__ = ["copy_lines", "decoder_lines", "decoder_type", "hexes", "output_type", "scales_of"]


def output_type(model: Model, out: Output) -> str:
    return c_type(*model.bounds.values[out.value])


def copy_lines(ctx: Context, number: int) -> list[str]:
    """Output `number` out of its value."""
    out = ctx.model.program.outputs[number]
    place, size = ctx.plan.places[out.value], prod(out.shape)
    channels = place.value.channels
    index = out.index.array()
    position = ctx.tables.at(index // channels, "i", "position")
    channel = ctx.tables.at(index % channels, "i", "channel")
    kind = output_type(ctx.model, out)
    copy = f"out->o{number}[i] = ({kind}){place.read('q', 'r')};"
    return loop("i", size, given("q", position, given("r", channel, [copy])))


def scales_of(model: Model, out: Output) -> tuple[Reals, float]:
    """What one step of each element is worth [*shape], behind the scalings, and what is added."""
    if out.kind == "count":
        worth = np.array(out.scales or [1.0]).reshape(-1, *[1] * (-out.axis - 1))
        return np.broadcast_to(worth, out.shape), 0.0
    name = str(out.name)
    if out.kind == "current":
        p = model.projections[name]
        unit = p.unit if p.rescale is None else p.rescale.scales
        return np.broadcast_to(unit.reshape(-1, *[1] * (-out.axis - 1)), out.shape), 0.0
    n = model.neurons[name]
    op = next(op for op in model.program.operations if isinstance(op, Neuron) and op.name == name)
    value = model.program.values[op.output]
    units = np.tile(n.unit, value.positions) if op.channel is None else n.unit[op.channel.array()]
    return units[out.index.array()].reshape(out.shape), n.v_rest


def hexes(values: Iterable[float]) -> list[str]:
    """Doubles without a rounding."""
    return [float(x).hex() for x in values]


def decoder_type(out: Output) -> str:
    return {"float64": "double", "float32": "float", "int64": "int64_t"}[out.given_type]


def decoder_lines(ctx: Context, number: int) -> list[str]:
    """A function that makes real numbers of output `number`."""
    out, model = ctx.model.program.outputs[number], ctx.model
    kind, real = decoder_type(replace(out, then=())), "double" if out.dtype == "float64" else "float"
    scales, rest = scales_of(model, out)
    tables, scale = _by_axis(f"{ctx.name}_scale{number}", scales)
    body = [f"volatile double x = (double)out->o{number}[i]; /* volatile: every result is rounded */"]
    body.append("(void)steps;")
    head = next((op for op in late_heads(model) if op.output == out.value), None)
    if head is not None:
        place = ctx.plan.places[out.value]
        bias = np.broadcast_to(
            model.projections[head.name].bias, (place.value.positions, place.value.channels)
        )
        own = bias.reshape(-1)[out.index.array()].reshape(out.shape).astype(np.float64)
        more, b = _by_axis(f"{ctx.name}_bias{number}", own)
        tables += more
        body += [
            f"if (steps != {model.program.steps}U) {{ /* a mean over other steps: the bias stays */",
            f"  x = x - {b};",
            f"  x = x * ({float(model.program.steps).hex()} / (double)steps);",
            f"  x = x + {b};",
            "}",
        ]
    body.append(f"volatile {real} z = ({real})x;")
    for what, *by in out.scalings:
        amount = f"({real})steps" if not by else f"({real}){float(by[0]).hex()}"
        body.append(f"z = z {'*' if what == 'mul' else '/'} {amount};")
    if out.kind == "count" and not out.scales:
        body.append("return z;")
    else:
        body += [
            f"x = (double)z * {scale};",
            *([f"x = x + {rest.hex()};"] if out.kind == "potential" else []),
            "return (float)x;",
        ]
    given = decoder_type(out)
    decides = any(how == "argmax" for how, _ in out.then)
    each = [
        f"for (uint32_t i = 0; i < {prod(out.shape)}; i++) {{",
        f"  y[i] = {ctx.name}_real{number}(out, steps, i);",
        "}",
    ]
    return [
        *tables,
        f"static {kind} {ctx.name}_real{number}(const {ctx.name}_output *out, uint32_t steps, uint32_t i)",
        "{",
        *block(body),
        "}",
        "",
        f"void {ctx.name}_decode{number}(const {ctx.name}_output *out, uint32_t steps, {given} *y)",
        "{",
        *block([] if decides else each),
        *block(finish_lines(ctx.name, number, out) if out.then else []),
        "}",
        "",
    ]


def _by_axis(symbol: str, values: Any) -> tuple[list[str], str]:
    """A table of doubles and the expression of element i: by the one axis along which they change."""
    array = np.asarray(values, dtype=np.float64)
    if (array == array.reshape(-1)[0]).all():
        return [], f"({float(array.reshape(-1)[0]).hex()})"
    for axis in range(array.ndim):
        first = np.take(array, [0], axis=axis)
        line = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
        if first.size >= 1 and (line == line[0]).all():
            inner = prod(array.shape[axis + 1 :])
            at = "i" if inner == 1 and array.size == len(line[0]) else f"(i / {inner}U) % {len(line[0])}U"
            return _table(symbol, line[0]), f"{symbol}[{at}]"
    return _table(symbol, array.reshape(-1)), f"{symbol}[i]"


def _table(symbol: str, values: Reals) -> list[str]:
    return [f"static const double {symbol}[{len(values)}] = {{", *initializer(hexes(values)), "};"]

"""Every other operation of a program, for one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptq4snn.export.onnx_form.graph import Name, carrier
from ptq4snn.export.onnx_form.neurons import neuron
from ptq4snn.export.onnx_form.projections import project
from ptq4snn.export.onnx_form.values import Step
from ptq4snn.network import program as ops
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS

__all__ = ["write"]

COMPARE = {"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"}


def write(step: Step, op: ops.Operation) -> None:
    """The nodes of an operation."""
    _WRITERS[type(op)](step, op)


def _quantize(step: Step, op: ops.Quantize) -> None:
    """clip(rint(x / scale + zero), 0, 255), in float64."""
    nodes, value = step.nodes, step.model.program.values[op.output]
    grid, index = step.model.projections[op.name].input, op.index.array()
    assert grid is not None
    x = nodes.cast(step.x, "float64")
    if (index < 0).any():  # a real 0 behind the last number
        first = nodes.take(x, np.array([0]), 1)
        x = nodes("Concat", x, nodes("Sub", first, first), axis=1)
    count = int(np.prod(step.model.program.input.shape))
    x = nodes.reshape(nodes.take(x, np.where(index < 0, count, index), 1), 0, value.positions, value.channels)
    x = nodes("Mul", x, nodes.constant(1 / grid.scales, "float64"))
    x = nodes("Round", nodes("Add", x, nodes.constant(grid.zeros / 2**ZERO_FRACTION_BITS, "float64")))
    x = nodes("Clip", x, nodes.constant(0.0, "float64"), nodes.constant(255.0, "float64"))
    step.put(op.output, nodes.cast(x, "float32"), "float32")


def _padded(step: Step, x: Name, axis: int, value: float, dtype: str) -> Name:
    """With one more entry along an axis, all of it `value`."""
    nodes = step.nodes
    zero = nodes("Mul", nodes.take(x, np.array([0]), axis), nodes.constant(0, dtype))
    name: Name = nodes("Concat", x, nodes("Add", zero, nodes.constant(value, dtype)), axis=axis)
    return name


def _reduced(step: Step, kind: str, x: Name, axis: int) -> Name:
    name: Name = step.nodes(kind, x, step.nodes.shape(axis), keepdims=0)
    return name


def _pool(step: Step, op: ops.Pool) -> None:
    nodes, value = step.nodes, step.model.program.values[op.output]
    dtype, source = carrier(step.largest(op.output)), step.model.program.values[op.inputs[0]]
    taps, weights = op.table(value.positions)
    x = step.get(op.inputs[0], dtype)
    if (taps < 0).any():
        least = min(step.model.bounds.values[op.inputs[0]][0], 0)  # which no maximum takes
        x = _padded(step, x, 1, least if op.how == "max" and op.window is not None else 0, dtype)
        taps = np.where(taps < 0, source.positions, taps)
    x = nodes.reshape(nodes.take(x, taps.reshape(-1), 1), 0, *taps.shape, value.channels)  # [B, P, K, C]
    if weights is not None:
        x = nodes("Mul", x, nodes.constant(weights.reshape(*taps.shape, 1), dtype))
    step.put(op.output, _reduced(step, "ReduceMax" if op.how == "max" else "ReduceSum", x, 2), dtype)


def _gather(step: Step, op: ops.Gather) -> None:
    nodes, value = step.nodes, step.model.program.values[op.output]
    dtype, index = carrier(step.largest(op.output)), op.index.array().reshape(-1, op.width)
    sizes = [
        step.model.program.values[v].positions * step.model.program.values[v].channels for v in op.inputs
    ]
    flat = [nodes.reshape(step.get(v, dtype), 0, n) for v, n in zip(op.inputs, sizes, strict=True)]
    x = flat[0] if len(flat) == 1 else nodes("Concat", *flat, axis=1)
    if (index < 0).any():
        x = _padded(step, x, 1, 0, dtype)
        index = np.where(index < 0, sum(sizes), index)
    if op.width == 1:
        x = nodes.take(x, index.reshape(-1), 1)
    else:
        kind = "ReduceSum" if op.how == "sum" else "ReduceMax"
        x = _reduced(step, kind, nodes.reshape(nodes.take(x, index.reshape(-1), 1), 0, *index.shape), 2)
    step.put(op.output, nodes.reshape(x, 0, value.positions, value.channels), dtype)


def _combine(step: Step, op: ops.Combine) -> None:
    nodes, dtype = step.nodes, _wide(step, op)
    parts = []
    for v, c in zip(op.inputs, op.coefficients, strict=True):
        x = step.get(v, dtype)
        parts.append(x if c == 1 else nodes("Mul", x, nodes.constant(c, dtype)))
    if op.constant:
        parts.append(nodes.constant(op.constant, dtype))
    step.put(op.output, nodes.fold("Add", parts), dtype)


def _wide(step: Step, op: ops.Operation) -> str:
    """A carrier of what is read and of what is made."""
    return carrier(max(step.largest(v) for v in (*op.inputs, op.output)))


def _multiply(step: Step, op: ops.Multiply) -> None:
    dtype = _wide(step, op)
    a, b = (step.get(v, dtype) for v in op.inputs)
    step.put(op.output, step.nodes("Mul", a, b), dtype)


def _affine(step: Step, op: ops.Affine) -> None:
    nodes, dtype, m = step.nodes, _wide(step, op), step.model.mirrors[op.name]
    x = nodes("Mul", step.get(op.inputs[0], dtype), nodes.constant(m.signs, dtype))
    step.put(op.output, nodes("Add", x, nodes.constant(m.shifts, dtype)), dtype)


def _clip(step: Step, op: ops.Clip) -> None:
    nodes, dtype = step.nodes, _wide(step, op)
    x = step.get(op.inputs[0], dtype)
    x = x if op.low is None else nodes("Max", x, nodes.constant(op.low, dtype))
    x = x if op.high is None else nodes("Min", x, nodes.constant(op.high, dtype))
    step.put(op.output, x, dtype)


def _choice(step: Step, op: ops.Choice) -> None:
    nodes = step.nodes
    a = step.get(op.inputs[0], "float64")
    b = step.get(op.inputs[1], "float64") if op.constant is None else nodes.constant(op.constant, "float64")
    if op.how in ("max", "min"):
        step.put(op.output, nodes("Max" if op.how == "max" else "Min", a, b), "float64")
        return
    found = nodes("Not", nodes("Equal", a, b)) if op.how == "ne" else nodes(COMPARE[op.how], a, b)
    step.put(op.output, nodes.cast(found, "float32"), "float32")


def _matmul(step: Step, op: ops.MatMul) -> None:
    nodes, dtype = step.nodes, _wide(step, op)
    a, b = (step.model.program.values[v] for v in op.inputs)
    value = step.model.program.values[op.output]
    x = nodes.reshape(step.get(op.inputs[0], dtype), 0, op.groups, a.positions // op.groups, a.channels)
    y = nodes.reshape(step.get(op.inputs[1], dtype), 0, op.groups, a.channels, b.channels)
    step.put(op.output, nodes.reshape(nodes("MatMul", x, y), 0, value.positions, value.channels), dtype)


def _time_sum(step: Step, op: ops.TimeSum) -> None:
    """Over all steps so far; exact in float64, kept as int64."""
    nodes = step.nodes
    x = step.get(op.inputs[0], "float64")
    total = nodes("Add", nodes.cast(step.states[op.output], "float64"), x)
    step.after[op.output] = nodes.cast(total, "int64")
    step.put(op.output, total, "float64")


def _delay(step: Step, op: ops.Delay) -> None:
    step.put(op.output, step.nodes.cast(step.states[op.output], "float32"), "float32")


_WRITERS: dict[type[ops.Operation], Callable[[Step, Any], None]] = {
    ops.Quantize: _quantize,
    ops.Project: project,
    ops.Neuron: neuron,
    ops.Pool: _pool,
    ops.Gather: _gather,
    ops.Combine: _combine,
    ops.Multiply: _multiply,
    ops.Affine: _affine,
    ops.Clip: _clip,
    ops.Choice: _choice,
    ops.MatMul: _matmul,
    ops.TimeSum: _time_sum,
    ops.Delay: _delay,
}

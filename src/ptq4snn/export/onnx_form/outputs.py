"""Outputs of a step as real numbers, by the same roundings as `runtime/decode.py`."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.onnx_form.finishing import finish
from ptq4snn.export.onnx_form.graph import Name
from ptq4snn.export.onnx_form.values import Step
from ptq4snn.network.program import Output
from ptq4snn.runtime.decode import late_heads, worth_of

__all__ = ["decoded"]


def decoded(step: Step, out: Output, total: Name) -> Name:
    """[B, *shape] of one output; `total` are the steps that a mean over time divides by, a float64."""
    nodes, model = step.nodes, step.model
    value = model.program.values[out.value]
    count = value.positions * value.channels
    head = next((op for op in late_heads(model) if op.output == out.value), None)
    x = step.get(out.value, "float64")
    if head is not None:  # W x grows or shrinks with the steps, b stays
        b = nodes.constant(model.projections[head.name].bias, "float64")
        by = step.from_calibration()
        x = nodes("Add", nodes("Mul", nodes("Sub", x, b), by), b)
    x = nodes.reshape(x, 0, count)
    if not out.index.is_identity(count):
        x = nodes.take(x, out.index.array(), 1)
    x = nodes.cast(nodes.reshape(x, 0, *out.shape), out.dtype)
    for kind, *by_number in out.scalings:
        factor = nodes.constant(by_number[0], out.dtype) if by_number else nodes.cast(total, out.dtype)
        x = nodes("Mul" if kind == "mul" else "Div", x, factor)
    worth = worth_of(model, out)
    if worth is None:
        return finish(nodes, x, out)
    unit, rest = worth
    x = nodes("Mul", nodes.cast(x, "float64"), nodes.constant(unit, "float64"))
    x = x if rest is None else nodes("Add", x, nodes.constant(np.float64(rest)))
    return finish(nodes, nodes.cast(x, "float32"), out)

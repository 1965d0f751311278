"""Projections: a convolution where its sums are exact in float32, else all taps side by side and a matrix."""

from __future__ import annotations

from math import prod

import numpy as np

from ptq4snn.export.onnx_form.graph import Array, Name, carrier
from ptq4snn.export.onnx_form.values import Step
from ptq4snn.network.index import window_taps
from ptq4snn.network.program import Project
from ptq4snn.runtime.numpy_project import border_map

__all__ = ["project"]

NIBBLE = 4


def project(step: Step, op: Project) -> None:
    """y = ((Wq x) << shift) + bias, rescaled where the plan says so."""
    model, nodes = step.model, step.nodes
    n, x = model.projections[op.name], model.program.values[op.inputs[0]]
    low, high = model.bounds.sums[op.name]
    sums = carrier(int(max(-low.min(), high.max())))
    wide = n.over_time or n.rescale is not None
    dtype = "float64" if wide else carrier(step.largest(op.output))
    given = step.get(op.inputs[0], sums)
    as_image = op.window is not None and len(op.window.size) <= 3 and sums == "float32"
    y = _convolution(step, op, given) if as_image else _matrix(step, op, given, sums)
    y = y if sums == dtype else nodes.cast(y, dtype)
    y = y if n.shift == 0 else nodes("Mul", y, nodes.constant(2.0**n.shift, dtype))
    y = nodes("Add", y, nodes.constant(border_map(n, op, x.positions), dtype))
    if n.over_time and n.role != "output":
        y = _at_steps(step, y, n.bias)
    if n.rescale is not None:
        by, half = n.rescale.multipliers * 2.0**-n.rescale.shifts, 2.0 ** (n.rescale.bits - 1)
        y = nodes("Round", nodes("Mul", y, nodes.constant(by, dtype)))
        y = nodes("Clip", y, nodes.constant(-half, dtype), nodes.constant(half - 1, dtype))
    step.put(op.output, y, dtype)


def _at_steps(step: Step, y: Name, bias: Array) -> Name:
    """(y - bias) T / T' + bias, rounded: nothing changes at the T of calibration."""
    nodes = step.nodes
    b = nodes.constant(bias, "float64")
    by = step.from_calibration()
    name: Name = nodes("Round", nodes("Add", nodes("Mul", nodes("Sub", y, b), by), b))
    return name


def _weights(step: Step, weights: Array, bits: int, dtype: str) -> Name:
    """Whole numbers, kept narrow in the file and widened where they are used."""
    nodes = step.nodes
    narrow = nodes.constant(weights, np.int8) if bits > NIBBLE else nodes.pool.packed(weights)
    return (
        nodes.cast(nodes.cast(narrow, "float32"), dtype) if dtype == "float64" else nodes.cast(narrow, dtype)
    )


def _convolution(step: Step, op: Project, x: Name) -> Name:
    """On channels first; positions are row-major over the image."""
    nodes, n, w = step.nodes, step.model.projections[op.name], op.window
    assert w is not None
    channels = step.model.program.values[op.inputs[0]].channels
    image = nodes.reshape(nodes("Transpose", x, perm=[0, 2, 1]), 0, channels, *w.size)
    y = nodes(
        "Conv", image, _weights(step, n.weight, n.bits, "float32"), kernel_shape=list(w.kernel),
        strides=list(w.stride), pads=[*w.before, *w.after], dilations=list(w.dilation), group=op.groups,
    )  # fmt: skip
    rows = nodes.reshape(y, 0, n.weight.shape[0], prod(w.out_size))
    name: Name = nodes("Transpose", rows, perm=[0, 2, 1])
    return name


def _matrix(step: Step, op: Project, x: Name, dtype: str) -> Name:
    """[B, P, K Cin] times [K Cin, Cout], each group for itself."""
    nodes, n, value = step.nodes, step.model.projections[op.name], step.model.program.values[op.inputs[0]]
    cout, inside = n.weight.shape[:2]
    groups, width = op.groups, n.weight.shape[0] // op.groups
    taps = np.arange(value.positions)[:, None] if op.window is None else window_taps(op.window)
    rows, count = taps.shape
    if op.window is not None:
        zero = nodes("Mul", nodes.take(x, np.array([0]), 1), nodes.constant(0, dtype))
        padded = nodes("Concat", x, zero, axis=1)  # -1 is the row of zeros
        x = nodes.take(padded, np.where(taps < 0, value.positions, taps).reshape(-1), 1)
    w = n.weight.reshape(groups, width, inside, count).transpose(0, 3, 2, 1)  # [G, K, Cin / G, Cout / G]
    if groups == 1:
        matrix = _weights(step, w.reshape(count * inside, cout), n.bits, dtype)
        product: Name = nodes("MatMul", nodes.reshape(x, 0, rows, count * inside), matrix)
        return product
    split = nodes.reshape(x, 0, rows, count, groups, inside)
    split = nodes("Transpose", split, perm=[0, 3, 1, 2, 4])  # [B, G, P, K, Cin / G]
    split = nodes.reshape(split, 0, groups, rows, count * inside)
    matrix = _weights(step, w.reshape(groups, count * inside, width), n.bits, dtype)
    y = nodes("Transpose", nodes("MatMul", split, matrix), perm=[0, 2, 1, 3])
    return nodes.reshape(y, 0, rows, cout)

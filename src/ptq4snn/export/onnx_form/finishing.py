"""Softmax, log-softmax and argmax behind a decoded output, step by step as `numerics/finishing.py`.

Powers of two come from a table: ONNX has no exact ldexp.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptq4snn.export.onnx_form.graph import Name, Nodes
from ptq4snn.network.program import Output
from ptq4snn.numerics.finishing import (
    EXP_TERMS,
    LEAST,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    LOG_TERMS,
    MAX_CLASSES,
    ROOT_2,
    sum_bits,
)

__all__ = ["finish"]

POWERS = 1100  # 2^0, 2^-1, ...


def finish(nodes: Nodes, x: Name, out: Output) -> Name:
    """x [B, *shape] behind all that the output ends with."""
    shape = list(out.shape)
    for how, axis in out.then:
        at = axis + len(shape) + 1
        if how == "argmax":
            x = nodes("ArgMax", x, axis=at, keepdims=0, select_last_index=0)
            del shape[axis]
        else:
            dtype = replace(out, then=()).given_type
            x = nodes.cast(_normalised(nodes, nodes.cast(x, "float64"), at, shape[axis], how), dtype)
    return x


def _wide(nodes: Nodes, value: float) -> Name:
    return nodes.constant(value, "float64")


def _normalised(nodes: Nodes, x: Name, axis: int, classes: int, how: str) -> Name:
    below = nodes("Sub", x, nodes("ReduceMax", x, nodes.shape(axis), keepdims=1))
    e, bits = _exp(nodes, below), sum_bits(classes)
    whole = nodes("Round", nodes("Mul", e, _wide(nodes, 2.0**bits)))
    total = nodes("ReduceSum", whole, nodes.shape(axis), keepdims=1)
    total = nodes("Mul", total, _wide(nodes, 2.0**-bits))
    name: Name = nodes("Sub", below, _log(nodes, total)) if how == "log_softmax" else nodes("Div", e, total)
    return name


def _polynomial(nodes: Nodes, x: Name, terms: tuple[float, ...]) -> Name:
    y: Name = nodes("Add", nodes("Mul", x, _wide(nodes, terms[0])), _wide(nodes, terms[1]))
    for term in terms[2:]:
        y = nodes("Add", nodes("Mul", y, x), _wide(nodes, term))
    return y


def _power(nodes: Nodes, n: Name) -> Name:
    """2^-n of whole numbers n >= 0, in float64."""
    table = nodes.constant(2.0 ** -np.arange(float(POWERS)), "float64")
    name: Name = nodes("Gather", table, nodes.cast(n, "int64"))
    return name


def _exp(nodes: Nodes, d: Name) -> Name:
    near = nodes("Max", d, _wide(nodes, LEAST))
    n = nodes("Round", nodes("Mul", near, _wide(nodes, LOG2_E)))
    r = nodes("Sub", near, nodes("Mul", n, _wide(nodes, LN2_HIGH)))
    r = nodes("Sub", r, nodes("Mul", n, _wide(nodes, LN2_LOW)))
    e = nodes("Mul", _polynomial(nodes, r, EXP_TERMS), _power(nodes, nodes("Neg", n)))
    name: Name = nodes("Where", nodes("Less", d, _wide(nodes, LEAST)), _wide(nodes, 0.0), e)
    return name


def _log(nodes: Nodes, s: Name) -> Name:
    zero, one = _wide(nodes, 0.0), _wide(nodes, 1.0)
    k = zero
    for power in range(1, MAX_CLASSES.bit_length() + 1):  # how many powers of two lie below
        more = nodes("Where", nodes("GreaterOrEqual", s, _wide(nodes, 2.0**power)), one, zero)
        k = nodes("Add", k, more)
    m = nodes("Mul", s, _power(nodes, k))
    above = nodes("Greater", m, _wide(nodes, ROOT_2))
    m = nodes("Where", above, nodes("Mul", m, _wide(nodes, 0.5)), m)
    k = nodes("Where", above, nodes("Add", k, one), k)
    f = nodes("Div", nodes("Sub", m, one), nodes("Add", m, one))
    series = nodes("Mul", f, _polynomial(nodes, nodes("Mul", f, f), LOG_TERMS))
    low = nodes("Add", nodes("Mul", k, _wide(nodes, LN2_LOW)), series)
    name: Name = nodes("Add", nodes("Mul", k, _wide(nodes, LN2_HIGH)), low)
    return name

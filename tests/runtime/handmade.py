"""A small valid program with every operation, and ways to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptq4snn.network.index import Index, Window, identity
from ptq4snn.network.program import (
    Affine,
    Choice,
    Clip,
    Combine,
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
    Value,
)
from ptq4snn.runtime.loading import build
from ptq4snn.runtime.parameters import InputGrid, Mirror, Model, NeuronNumbers, ProjectionNumbers

ONES, ZEROS = np.ones(3, np.int64), np.zeros(3, np.int64)
Change = Callable[[dict[str, Any]], None]
WINDOW = Window((2, 2), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))


def base() -> dict[str, Any]:
    """A small valid program with every operation; the values are numbered as they are made."""
    still, timed, summed = Value(4, 3, False), Value(4, 3, True), Value(4, 3, False)
    values = (Value(4, 2, False), still, *[timed] * 9, summed, summed, timed)
    weight = np.ones((3, 2, 3, 3), np.int8)
    grid = InputGrid(np.ones(2), np.zeros(2, np.int64))
    operations: list[Any] = [
        Quantize(0, (), "conv", identity(8)),
        Project(1, (0,), "conv", WINDOW, 1),
        Neuron(2, (1,), "lif", 1, None, None, False, 13),
        Pool(3, (2,), "pool", "max", WINDOW, None, None),
        Gather(4, (3,), "gather", "sum", 1, identity(12)),
        Combine(5, (3, 4), "add", (1, 1), 0),
        Multiply(6, (5, 2), "times"),
        Affine(7, (6,), "mirror"),
        Clip(8, (7,), "clip", -5, 5),
        Choice(9, (8,), "choice", "max", 0),
        MatMul(10, (9, 9), "matmul", 1),
        TimeSum(11, (9,), "sum"),
        Neuron(12, (11,), "last", 1, None, None, True, None),
    ]
    # a [4, 3] times b [3, 3]: b is a smaller value
    operations[10] = MatMul(10, (9, 14), "matmul", 1)
    operations.insert(10, Gather(14, (9,), "part", "sum", 1, Index((9,), (1,))))
    values = (*values, Value(3, 3, True))
    neuron = NeuronNumbers(
        0, False, 4 * ONES, ZEROS, -8 * ONES, 7 * ONES, ONES, ZEROS, ONES, ONES, ONES, ONES, "hard", "even",
        np.ones(3), 0.0, (4, 3),
    )  # fmt: skip
    projection = ProjectionNumbers(weight, 4, ZEROS, 0, False, grid, None, np.ones(3), "pair")
    out = Output(12, "count", None, -1, identity(12), (4, 3), 0, None, "float32", ())
    potential = replace(out, value=13, kind="potential", name="lif", time_axis=0, batch_axis=1)
    current = replace(out, value=1, kind="current", name="conv")
    return {
        "program": Program(4, Input((8,), 0, None), values, tuple(operations), (out, potential, current)),
        "projections": {"conv": projection},
        "neurons": {"lif": neuron, "last": neuron},
        "mirrors": {"mirror": Mirror(ONES, ZEROS)},
    }


def made(parts: dict[str, Any]) -> Model:
    return build(**parts)


def change(name: str, /, **fields: Any) -> Change:
    """Other fields of the operation `name`."""

    def do(parts: dict[str, Any]) -> None:
        p = parts["program"]
        ops = tuple(
            replace(op, **fields) if op.name == name and op.kind != "quantize" else op for op in p.operations
        )
        parts["program"] = replace(p, operations=ops)

    return do


def program(**fields: Any) -> Change:
    return lambda parts: parts.update(program=replace(parts["program"], **fields))


def value(v: int, /, **fields: Any) -> Change:
    def do(parts: dict[str, Any]) -> None:
        values = list(parts["program"].values)
        values[v] = replace(values[v], **fields)
        parts["program"] = replace(parts["program"], values=tuple(values))

    return do


def output(i: int, /, **fields: Any) -> Change:
    def do(parts: dict[str, Any]) -> None:
        outputs = list(parts["program"].outputs)
        outputs[i] = replace(outputs[i], **fields)
        parts["program"] = replace(parts["program"], outputs=tuple(outputs))

    return do


def number(kind: str, name: str, /, **fields: Any) -> Change:
    return lambda parts: parts[kind].update({name: replace(parts[kind][name], **fields)})


def change_quantize(parts: dict[str, Any], **fields: Any) -> None:
    p = parts["program"]
    parts["program"] = replace(p, operations=(replace(p.operations[0], **fields), *p.operations[1:]))

"""`ptq4snn.export.onnx`: the program as an ONNX model, one step or the whole sequence.

step      inputs  x [B, *shape], step [] (steps before this one), a state each
          outputs y each, a state each, step + 1
sequence  inputs  x [B, T, *shape] (of still images [B, *shape]); from rest
          outputs y each, [B, *shape] or with time [B, T, *shape]

All integers are exact in the floats that carry them, which the proven bounds of the program say.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn import __version__
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.onnx_form.graph import CODES, Name, Nodes, Pool
from ptq4snn.export.onnx_form.operations import write
from ptq4snn.export.onnx_form.outputs import decoded
from ptq4snn.export.onnx_form.qonnx import qonnx_model
from ptq4snn.export.onnx_form.values import Step
from ptq4snn.extras import needed_by
from ptq4snn.files import check_target, short, write_whole
from ptq4snn.network.program import Delay, Neuron, TimeSum
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.engine import is_causal
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import MAX_STEPS

with needed_by("ptq4snn.export.onnx"):
    import onnx as library
    from onnx import helper

__all__ = ["FORMS", "OPSETS", "onnx", "onnx_model"]

FORMS = ("step", "scan", "unrolled")
OPSETS = range(21, 27)  # from the first with 4-bit integers to the last that onnxruntime 1.31 runs
BATCH = "batch"
MAX_NODES = 200_000  # of a sequence that is written out


def onnx(
    source: str | Path | Model,
    out: str | Path,
    *,
    form: str = "step",
    steps: int | None = None,
    opset: int = OPSETS[0],
    qonnx: bool = False,
    limits: Limits | None = None,
) -> None:
    """Write a bundle as an ONNX model.

    form: "step" (state in, state out), "scan" (the sequence, by a Scan) or "unrolled" (its steps one by one).
    steps: of the sequence; the T of calibration.
    opset: the version of the operators, 21 to 26; the first is read by most.
    qonnx: a step of a plain chain of layers with the Quant nodes of QONNX, for readers that build hardware.
    limits: what the bundle may ask for, or those of `Limits()`.
    """
    model = source if isinstance(source, Model) else load_model_file(source, limits or Limits())
    check_target(Path(out))
    if qonnx and (form != "step" or steps is not None or opset != OPSETS[0]):
        raise PTQ4SNNError("QONNX is written of one step: leave out form, steps and opset")
    made = qonnx_model(model) if qonnx else onnx_model(model, form, steps, opset)
    write_whole(Path(out), made.SerializeToString())


def onnx_model(model: Model, form: str = "step", steps: int | None = None, opset: int = OPSETS[0]) -> Any:
    """The ModelProto, checked by onnx itself."""
    if opset not in OPSETS:
        raise PTQ4SNNError(f"opset is {short(repr(opset))}: give one from {OPSETS[0]} to {OPSETS[-1]}")
    if form not in FORMS:
        raise PTQ4SNNError(f"there is no form {form!r} of an ONNX model: give one of {', '.join(FORMS)}")
    if not is_causal(model.program):
        raise PTQ4SNNError("the model looks at the whole sequence at every step: it has no ONNX form")
    pool = Pool()
    steps = model.program.steps if steps is None else _checked(steps, model)
    if form == "step":
        graph = _step_graph(model, pool)
    elif form == "scan":
        graph = _scan_graph(model, pool, steps)
    else:
        graph = _unrolled_graph(model, pool, steps)
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(
        graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports),
        producer_name="ptq4snn", producer_version=__version__,
    )  # fmt: skip
    library.checker.check_model(made, full_check=True)
    return made


def _checked(steps: object, model: Model) -> int:
    most = min(model.bounds.steps, MAX_STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= most:
        raise PTQ4SNNError(f"steps is {short(repr(steps))}: give a whole number from 1 to {most:,}")
    return steps


def _kept(model: Model) -> list[tuple[int, str, tuple[int, int]]]:
    """What goes from step to step: value, type and size of a sample."""
    found = []
    for op in model.program.operations:
        value = model.program.values[op.output]
        size = value.positions, value.channels
        if isinstance(op, Delay) or (isinstance(op, Neuron) and not op.once):
            found.append((op.output, "int32", size))
        elif isinstance(op, TimeSum):
            found.append((op.output, "int64", size))
    return found


def _one_step(
    model: Model, nodes: Nodes, x: Name, before: Name, states: dict[int, Name], total: int | None = None
) -> tuple[Step, list[Name]]:
    """Nodes of a step behind `before` others (an int64), and its outputs; `total`: of so many steps, where
    that is known."""
    count = nodes("Add", before, nodes.constant(1, np.int64))
    phase = nodes("Mod", before, nodes.constant(16, np.int64))
    x = nodes.reshape(x, 0, prod(model.program.input.shape))
    step = Step(model, nodes, x, nodes.cast(count, "float64"), phase, states)
    for op in model.program.operations:
        write(step, op)
    for op in model.program.operations:
        if isinstance(op, Delay):
            step.after[op.output] = nodes.cast(step.values[op.inputs[0]].name, "int32")
    divisor = step.total if total is None else nodes.constant(total, "float64")
    return step, [decoded(step, out, divisor) for out in model.program.outputs]


def _tensor(name: Name, dtype: str, shape: Sequence[int | str]) -> Any:
    return helper.make_tensor_value_info(name, CODES[dtype], list(shape))


def _same(nodes: Nodes, x: Name, name: Name) -> None:
    """x under a name that a graph shows."""
    nodes.nodes.append(helper.make_node("Identity", [x], [name]))


def _step_graph(model: Model, pool: Pool) -> Any:
    nodes, program = Nodes(pool, "n"), model.program
    kept = _kept(model)
    states = {v: f"state{i}" for i, (v, _, _) in enumerate(kept)}
    step, outputs = _one_step(model, nodes, "x", "step", states)
    shown = [_tensor("x", "float32", (BATCH, *program.input.shape)), _tensor("step", "int64", ())]
    given = []
    for i, (name, out) in enumerate(zip(outputs, program.outputs, strict=True)):
        _same(nodes, name, f"y{i}")
        given.append(_tensor(f"y{i}", out.given_type, (BATCH, *out.given_shape)))
    _same(nodes, nodes("Add", "step", nodes.constant(1, np.int64)), "step_after")
    given.append(_tensor("step_after", "int64", ()))
    for i, (v, dtype, size) in enumerate(kept):
        _same(nodes, step.after[v], f"state{i}_after")
        shown.append(_tensor(f"state{i}", dtype, (BATCH, *size)))
        given.append(_tensor(f"state{i}_after", dtype, (BATCH, *size)))
    return helper.make_graph(nodes.nodes, "step", shown, given, pool.tensors)


def _frames(model: Model, nodes: Nodes) -> Name:
    """x [B, T, ...] as [T, B, ...]."""
    rank = len(model.program.input.shape) + 2
    name: Name = nodes("Transpose", "x", perm=[1, 0, *range(2, rank)])
    return name


def _rest(model: Model, nodes: Nodes) -> dict[int, Name]:
    """States of a batch at rest."""
    batch = nodes("Shape", "x", start=0, end=1)
    found = {}
    for v, dtype, size in _kept(model):
        shape = nodes("Concat", batch, nodes.shape(*size), axis=0)
        zero = helper.make_tensor("zero", CODES[dtype], [1], [0])
        found[v] = nodes("ConstantOfShape", shape, value=zero)
    return found


def _sequence_inputs(model: Model, steps: int) -> list[Any]:
    timed = model.program.input.time_axis is not None
    shape = model.program.input.shape
    return [_tensor("x", "float32", (BATCH, steps, *shape) if timed else (BATCH, *shape))]


def _collected(model: Model, nodes: Nodes, stacked: list[Name], steps: int) -> list[Any]:
    """Outputs [T, B, ...] as the sequence gives them: with time, or the last."""
    given = []
    for i, (name, out) in enumerate(zip(stacked, model.program.outputs, strict=True)):
        if out.time_axis is None:
            last = nodes("Gather", name, nodes.constant(steps - 1, np.int64), axis=0)
            _same(nodes, last, f"y{i}")
            given.append(_tensor(f"y{i}", out.given_type, (BATCH, *out.given_shape)))
        else:
            rank = len(out.given_shape) + 2
            _same(nodes, nodes("Transpose", name, perm=[1, 0, *range(2, rank)]), f"y{i}")
            given.append(_tensor(f"y{i}", out.given_type, (BATCH, steps, *out.given_shape)))
    return given


def _unrolled_graph(model: Model, pool: Pool, steps: int) -> Any:
    nodes, timed = Nodes(pool, "n"), model.program.input.time_axis is not None
    frames = _frames(model, nodes) if timed else ""
    states, collected = _rest(model, nodes), []
    for t in range(steps):
        x = nodes("Gather", frames, nodes.constant(t, np.int64), axis=0) if timed else "x"
        step, outputs = _one_step(model, nodes, x, nodes.constant(t, np.int64), states, steps)
        states = step.after
        collected.append(outputs)
        if t == 0 and steps * len(nodes.nodes) > MAX_NODES:
            count = f"{steps:,} steps of {len(nodes.nodes):,} nodes"
            raise PTQ4SNNError(f"{count} one after the other are too many for a file: take the form scan")
    stacked = []
    for i in range(len(model.program.outputs)):
        rows = [nodes("Unsqueeze", row[i], nodes.shape(0)) for row in collected]
        stacked.append(nodes("Concat", *rows, axis=0))
    given = _collected(model, nodes, stacked, steps)
    return helper.make_graph(nodes.nodes, "sequence", _sequence_inputs(model, steps), given, pool.tensors)


def _scan_graph(model: Model, pool: Pool, steps: int) -> Any:
    """A Scan over the steps; of a still image over their numbers, with the image from outside."""
    nodes, body, timed = Nodes(pool, "n"), Nodes(pool, "b"), model.program.input.time_axis is not None
    kept = _kept(model)
    states = {v: f"s{i}" for i, (v, _, _) in enumerate(kept)}
    step, outputs = _one_step(model, body, "frame" if timed else "x", "t", states, steps)
    inner = [_tensor(f"s{i}", dtype, (BATCH, *size)) for i, (_, dtype, size) in enumerate(kept)]
    inner.append(_tensor("t", "int64", ()))
    if timed:
        inner.append(_tensor("frame", "float32", (BATCH, *model.program.input.shape)))
    after = []
    for i, (v, dtype, size) in enumerate(kept):
        _same(body, step.after[v], f"s{i}_after")
        after.append(_tensor(f"s{i}_after", dtype, (BATCH, *size)))
    for i, (name, out) in enumerate(zip(outputs, model.program.outputs, strict=True)):
        _same(body, name, f"row{i}")
        after.append(_tensor(f"row{i}", out.given_type, (BATCH, *out.given_shape)))
    graph = helper.make_graph(body.nodes, "body", inner, after)
    rest = _rest(model, nodes)
    numbers = nodes.constant(np.arange(steps), np.int64)
    scanned = [numbers, _frames(model, nodes)] if timed else [numbers]
    made = nodes(
        "Scan", *(rest[v] for v, _, _ in kept), *scanned, outputs=len(kept) + len(outputs), body=graph,
        num_scan_inputs=len(scanned),
    )  # fmt: skip
    made = [made] if isinstance(made, str) else made
    given = _collected(model, nodes, made[len(kept) :], steps)
    return helper.make_graph(nodes.nodes, "sequence", _sequence_inputs(model, steps), given, pool.tensors)

"""Proof that a program can be run: order, sizes and indices, before any memory is taken for it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ptq4snn.errors import BundleError
from ptq4snn.network.index import Window
from ptq4snn.network.program import Delay, Input, Neuron, Operation, Output, Program, Project, TimeSum
from ptq4snn.numerics.finishing import FINISHES, MAX_CLASSES
from ptq4snn.runtime.operation_check import RULES, Numbers, Place
from ptq4snn.runtime.parameters import Mirror, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.require import (
    MAX_ELEMENTS,
    MAX_INPUTS,
    MAX_RANK,
    Refused,
    check_index,
    elements,
    need,
    whole,
    wholes,
)
from ptq4snn.runtime.state import MAX_STEPS
from ptq4snn.runtime.stepwise import loops_of

__all__ = ["check"]

MAX_TOTAL = 2**31  # elements of all values together; `demand.py` knows how many live at once
MAX_CHANNELS = 2**24  # of all values together: bounds are kept for each
MAX_TABLES = 2**27  # numbers of all windows and indices, unfolded
MAX_WEIGHTS = 2**29  # of all operations; a projection that is read twice counts twice
MAX_OPERATIONS = 2**16
MAX_SCALING = 2.0**63
KINDS = ("count", "current", "potential")


def check(
    program: Program,
    projections: Mapping[str, ProjectionNumbers],
    neurons: Mapping[str, NeuronNumbers],
    mirrors: Mapping[str, Mirror],
) -> None:
    """Refuse, in one sentence, a program that cannot be run."""
    numbers = Numbers(projections, neurons, mirrors)
    where = "the program"
    try:
        _frame(program)
        made: set[int] = set()
        for i, op in enumerate(program.operations):
            where = f"operation {i} ({op.kind} {str(op.name)[:200]!r})"
            _operation(program, numbers, op, made)
        where = "the program"
        need(len(made) == len(program.values), "a value is never made")
        _loop(program)
        _tables(program, numbers)
        _once_each([op.name for op in program.operations if isinstance(op, Neuron)], "neuron")
        for i, out in enumerate(program.outputs):
            where = f"output {i}"
            _output(program, numbers, out)
    except Refused as why:
        raise BundleError(f"{where}: {why}; make the bundle again") from why


def _loop(program: Program) -> None:
    """What goes round has time, and no sum over all of it."""
    for op in [program.operations[i] for loop in loops_of(program) for i in loop]:
        fine = not isinstance(op, TimeSum) and not (isinstance(op, Neuron) and op.once)
        need(fine, f"the sum over time {op.name!r} goes round from step to step")


def _once_each(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        need(name not in seen, f"the {what} {name!r} runs twice")
        seen.add(name)


def _frame(program: Program) -> None:
    """Steps, the input and the sizes of all values."""
    whole(program.steps, 1, MAX_STEPS, "the number of steps")
    _input(program.input)
    need(0 < len(program.operations) <= MAX_OPERATIONS, f"it has not 1 .. {MAX_OPERATIONS} operations")
    need(len(program.values) <= 2 * MAX_OPERATIONS, "it has too many values")
    need(0 < len(program.outputs) <= MAX_INPUTS, f"it has not 1 .. {MAX_INPUTS} outputs")
    total = channels = 0
    for v in program.values:
        whole(v.positions, 1, MAX_ELEMENTS, "positions")
        whole(v.channels, 1, MAX_ELEMENTS, "channels")
        need(isinstance(v.time, bool), "a value's time is neither true nor false")
        need(v.positions * v.channels <= MAX_ELEMENTS, f"a value has more than {MAX_ELEMENTS} elements")
        total += v.positions * v.channels
        channels += v.channels
    need(total <= MAX_TOTAL, f"its values have more than {MAX_TOTAL} elements")
    need(channels <= MAX_CHANNELS, f"its values have more than {MAX_CHANNELS} channels")


def _tables(program: Program, numbers: Numbers) -> None:
    """What windows and indices unfold to, and the weights that all operations read."""
    windows: set[Window] = set()  # those of one form are unfolded once
    total = weights = 0
    for op in program.operations:
        window = getattr(op, "window", None)
        if window is not None and window not in windows:
            windows.add(window)
            total += prod(window.out_size) * prod(window.kernel)
        for name in ("index", "channel", "element"):
            index = getattr(op, name, None)
            total += 0 if index is None else index.count
        weights += numbers.projections[op.name].weight.size if isinstance(op, Project) else 0
    need(total <= MAX_TABLES, f"its windows and indices unfold to more than {MAX_TABLES} numbers")
    need(weights <= MAX_WEIGHTS, f"its operations read more than {MAX_WEIGHTS} weights")


def _input(x: Input) -> None:
    shape = wholes(x.shape, 1, MAX_ELEMENTS, "the input's shape", MAX_RANK)
    need(prod(shape) <= MAX_ELEMENTS, f"the input has more than {MAX_ELEMENTS} elements")
    _axes(x, len(shape), "the input's")


def _axes(x: Input | Output, rank: int, whose: str) -> None:
    rank += 1 if x.time_axis is None else 2
    whole(x.batch_axis, 0, rank - 1, f"{whose} batch axis")
    if x.time_axis is not None:
        whole(x.time_axis, 0, rank - 1, f"{whose} time axis")
        need(x.batch_axis != x.time_axis, f"{whose} batch and time are one axis")


def _operation(program: Program, numbers: Numbers, op: Operation, made: set[int]) -> None:
    """Every input was made before, the output was not; then what its kind asks for."""
    count = len(program.values)
    need(isinstance(op.name, str), "its name is not text")
    inputs = wholes(op.inputs, 0, count - 1, "an input", MAX_INPUTS)
    early = isinstance(op, Delay)  # what goes round is made later
    need(early or all(v in made for v in inputs), "it reads a value that was not made before it")
    outputs = [whole(op.output, 0, count - 1, "the output")]
    if isinstance(op, Neuron) and op.potential is not None:
        outputs.append(whole(op.potential, 0, count - 1, "the potential"))
    for v in outputs:
        need(v not in made, f"it makes the value {v} again")
        made.add(v)
    place = Place(program, numbers, tuple(program.values[v] for v in inputs), program.values[op.output])
    RULES[type(op)](op, place)


def _output(program: Program, numbers: Numbers, out: Output) -> None:
    value = program.values[whole(out.value, 0, len(program.values) - 1, "its value")]
    shape = wholes(out.shape, 1, MAX_ELEMENTS, "its shape", MAX_RANK)
    need(prod(shape) <= MAX_ELEMENTS, f"it has more than {MAX_ELEMENTS} elements")
    check_index(out.index, prod(shape), elements(value), False, "its index")
    _axes(out, len(shape), "its")
    need(out.dtype in ("float32", "float64"), "its type is neither float32 nor float64")
    need(out.kind in KINDS, "its kind is unknown")
    _scalings(out.scalings)
    _then(out.then, shape)
    if out.scales:
        need(out.kind == "count", "its scales are those of something else than spikes")
        axis = whole(out.axis, -len(shape), -1, "its axis")
        need(isinstance(out.scales, tuple) and len(out.scales) == shape[axis], "its scales are not one each")
        for x in out.scales:
            fine = isinstance(x, (int, float)) and not isinstance(x, bool) and 0 < abs(x) < MAX_SCALING
            need(fine, "one of its scales is no ordinary number")
    if out.kind == "current":
        p = numbers.projections.get(out.name) if isinstance(out.name, str) else None
        if p is None:
            raise Refused("the plan has no such projection")
        axis = whole(out.axis, -len(shape), -1, "its axis")
        units = len(p.unit) if p.rescale is None else len(p.rescale.scales)
        need(units in (1, shape[axis]), f"{units} scales for {shape[axis]} channels")
    if out.kind == "potential":
        makers = [op for op in program.operations if isinstance(op, Neuron) and op.potential == out.value]
        need(len(makers) == 1 and makers[0].name == out.name, "it is not the potential of its neuron")


def _then(then: Any, shape: tuple[int, ...]) -> None:
    need(isinstance(then, tuple) and len(then) <= MAX_RANK, "what follows it is no short list")
    left = list(shape)
    for step in then:
        need(isinstance(step, tuple) and len(step) == 2 and step[0] in FINISHES, "it ends with something odd")
        axis = whole(step[1], -len(left), -1, "the axis of a softmax or an argmax")
        need(left[axis] <= MAX_CLASSES, f"a softmax or an argmax is over more than {MAX_CLASSES} numbers")
        if step[0] == "argmax":
            del left[axis]
    need(all(step[0] != "argmax" for step in then[:-1]), "an argmax is not the last")


def _scalings(scalings: Any) -> None:
    need(isinstance(scalings, tuple) and len(scalings) <= MAX_RANK, "its scalings are no short list")
    for s in scalings:
        need(isinstance(s, tuple) and s != (), "a scaling is empty")
        if s != ("steps",):
            need(len(s) == 2 and s[0] in ("div", "mul"), "a scaling is neither div, mul nor steps")
            x = s[1]
            fine = isinstance(x, (int, float)) and not isinstance(x, bool) and 0 < abs(x) < MAX_SCALING
            need(fine, "a scaling is no ordinary number")

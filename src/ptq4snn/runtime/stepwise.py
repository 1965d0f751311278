"""Programs in which something goes round: what must run step by step, and what still runs all steps at once.

Operations from a delay to what it reads are a loop: they run one step after the other, on values of one step.
What they read from outside is taken step by step, what is read outside of them is put together again;
everything else stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptq4snn.network.program import Delay, Neuron, Operation, Program, Value
from ptq4snn.runtime.parameters import Model

__all__ = ["Put", "Stepwise", "Take", "loops_of", "made_by", "stepwise"]


@dataclass(frozen=True)
class Take(Operation):
    """The current step of a value, inside of the loop."""

    kind = "take"


@dataclass(frozen=True)
class Put(Operation):
    """A value with time, of what the loop made at each of its steps."""

    kind = "put"


@dataclass(frozen=True)
class Stepwise:
    """A model whose operations of each of `loops` are run for every step; `outside` are the numbers that
    values of a loop have outside of it."""

    model: Model
    loops: tuple[range, ...]
    outside: dict[int, int]


def made_by(op: Operation) -> list[int]:
    potential = op.potential if isinstance(op, Neuron) else None
    return [op.output] if potential is None else [op.output, potential]


def loops_of(program: Program) -> tuple[range, ...]:
    """From a delay to what it reads; those that overlap are one."""
    maker = {v: i for i, op in enumerate(program.operations) for v in made_by(op)}
    found: list[range] = []
    for i, op in enumerate(program.operations):
        if not isinstance(op, Delay):
            continue
        begin, end = min(i, maker[op.inputs[0]]), max(i, maker[op.inputs[0]]) + 1
        while found and found[-1].stop > begin:
            last = found.pop()
            begin, end = min(begin, last.start), max(end, last.stop)
        found.append(range(begin, end))
    return tuple(found)


def stepwise(model: Model, keep: frozenset[int] = frozenset()) -> Stepwise:
    """The model with its loops laid out; `keep` are values that are wanted outside of them."""
    laid: list[range] = []
    outside: dict[int, int] = {}
    for number in range(len(loops_of(model.program))):
        loop = loops_of(model.program)[number]
        model, own, put = _lay_out(model, loop, keep)
        laid.append(own)
        outside |= put
    return Stepwise(model, tuple(laid), outside)


def _lay_out(model: Model, loop: range, keep: frozenset[int]) -> tuple[Model, range, dict[int, int]]:
    """The model with takes in front of a loop and puts behind it, all of them inside, where they are now, and
    the numbers of the values that were put."""
    program = model.program
    inner = program.operations[loop.start : loop.stop]
    made = {v for op in inner for v in made_by(op)}
    later = {v for op in program.operations[loop.stop :] for v in op.inputs}
    wanted = made & (later | keep | {out.value for out in program.outputs})
    read = {v for op in inner for v in op.inputs} - made
    values, bounds = list(program.values), list(model.bounds.values)

    def twin(v: int, time: bool) -> int:
        values.append(replace(program.values[v], time=time))
        bounds.append(bounds[v])
        return len(values) - 1

    taken = {v: twin(v, False) for v in sorted(read) if program.values[v].time}
    outside = {v: twin(v, True) for v in sorted(wanted)}
    for v in made:
        values[v] = Value(values[v].positions, values[v].channels, False)
    operations = (
        *program.operations[: loop.start],
        *(Take(output=new, inputs=(v,), name="") for v, new in taken.items()),
        *(_renamed(op, taken) for op in inner),
        *(Put(output=new, inputs=(v,), name="") for v, new in outside.items()),
        *(_renamed(op, outside) for op in program.operations[loop.stop :]),
    )
    outputs = tuple(replace(out, value=outside.get(out.value, out.value)) for out in program.outputs)
    laid = replace(program, values=tuple(values), operations=operations, outputs=outputs)
    own = range(loop.start, loop.stop + len(taken) + len(outside))
    return replace(model, program=laid, bounds=replace(model.bounds, values=tuple(bounds))), own, outside


def _renamed(op: Operation, numbers: dict[int, int]) -> Operation:
    return replace(op, inputs=tuple(numbers.get(v, v) for v in op.inputs))

"""Which operations are run together, when, and where their values lie.

A group is one loop over the positions of its last operation, the root, which stores what it makes. What the
root alone reads, position by position, is not stored: a projection behind which a neuron stands leaves the
sums of one position, never of all.

Groups run in three phases: *still* (made of a still image alone), *timed*, *late* (behind a sum over time).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.storage import Place, choose
from ptq4snn.export.c99.text import c_type
from ptq4snn.network import program as ops
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.stepwise import made_by

__all__ = ["ALIGN", "Group", "Plan", "plan_of"]

POINTWISE = (ops.Combine, ops.Multiply, ops.Affine, ops.Clip, ops.Choice)
READ_IN_PLACE = (*POINTWISE, ops.Neuron, ops.TimeSum)  # position p of the input makes position p
UNSTORED = (*POINTWISE, ops.Project, ops.MatMul, ops.Pool)
PHASES = ("still", "timed", "late")
ALIGN = 8  # bytes


@dataclass
class Group:
    """Operations by number; the last is the root."""

    members: list[int]
    phase: str
    scratch: dict[str, Place] = field(default_factory=dict)

    @property
    def root(self) -> int:
        return self.members[-1]


@dataclass
class Plan:
    """Groups in the order in which they run, places of all values that are stored, and the arena's size."""

    groups: list[Group]
    places: dict[int, Place]
    arena: int = 0
    store_delays: dict[int, list[ops.Delay]] = field(default_factory=dict)  # behind the group with this root
    outputs: dict[int, list[int]] = field(default_factory=dict)  # copied behind the group with this root


def plan_of(model: Model) -> Plan:
    program = model.program
    phases = _phases(program)
    groups = _groups(program, phases)
    plan = Plan(groups, _places(model, groups))
    home = {i: g.root for g in groups for i in g.members}
    maker = {v: i for i, op in enumerate(program.operations) for v in made_by(op)}
    at = {g.root: n for n, g in enumerate(groups)}
    for i, op in enumerate(program.operations):
        if isinstance(op, ops.Delay):
            behind = max(home[i], home[maker[op.inputs[0]]], key=lambda root: at[root])
            plan.store_delays.setdefault(behind, []).append(op)
    for n, out in enumerate(program.outputs):
        plan.outputs.setdefault(home[maker[out.value]], []).append(n)
    return plan


def _phases(program: ops.Program) -> list[str]:
    """Of every operation; what cannot be run step by step is refused."""
    of_value: dict[int, str] = {}
    out = []
    for op in program.operations:
        before = {of_value[v] for v in op.inputs if not isinstance(op, ops.Delay)}
        own = program.values[op.output].time
        if "late" in before and own:
            raise PTQ4SNNError(
                "the model looks at the whole sequence at every step: it cannot be exported to C, "
                "which runs step by step"
            )
        phase = "late" if "late" in before else "timed" if own or isinstance(op, ops.TimeSum) else "still"
        out.append(phase)
        for v in made_by(op):
            of_value[v] = "late" if isinstance(op, ops.TimeSum) else phase
    return out


def _groups(program: ops.Program, phases: list[str]) -> list[Group]:
    reads: Counter[int] = Counter()
    for op in program.operations:
        reads.update(op.inputs)
    reads.update(out.value for out in program.outputs)
    maker = {op.output: i for i, op in enumerate(program.operations)}
    taken: set[int] = set()
    groups = []
    for i in reversed(range(len(program.operations))):
        if i in taken:
            continue
        members = [i]
        _absorb(program, phases, reads, maker, members, program.operations[i])
        taken |= set(members)
        groups.append(Group(sorted(members), phases[i]))
    return sorted(groups, key=lambda g: (PHASES.index(g.phase), g.root))


def _absorb(
    program: ops.Program, phases: list[str], reads: Counter[int], maker: dict[int, int], members: list[int],
    op: ops.Operation,
) -> None:  # fmt: skip
    """Add to `members` what `op` alone reads."""
    if not isinstance(op, READ_IN_PLACE) or (isinstance(op, ops.Neuron) and op.channel is not None):
        return
    root = members[0]
    for v in op.inputs:
        i = maker.get(v)
        if i is None or reads[v] > 1 or not _alone(program, phases, root, i, members):
            continue
        members.append(i)
        _absorb(program, phases, reads, maker, members, program.operations[i])


def _alone(program: ops.Program, phases: list[str], root: int, i: int, members: list[int]) -> bool:
    """Whether operation i can run inside of the root's loop over positions."""
    op, last = program.operations[i], program.operations[root]
    if not isinstance(op, UNSTORED) or (phases[i] != phases[root] and "late" in (phases[i], phases[root])):
        return False
    if program.values[op.output].positions != program.values[last.output].positions:
        return False
    sizes = {s for s in map(_axes, (program.operations[m] for m in members)) if s is not None}
    own = _axes(op)
    return own is None or not sizes or sizes == {own}


def _axes(op: ops.Operation) -> tuple[int, ...] | None:
    """The axes of the positions that an operation makes, where it has any."""
    if isinstance(op, (ops.Project, ops.Pool)) and op.window is not None:
        return op.window.out_size
    return None


def _places(model: Model, groups: list[Group]) -> dict[int, Place]:
    program, bounds = model.program, model.bounds.values
    stored = {v for g in groups for v in made_by(program.operations[g.root])}
    inner = {v for g in groups for i in g.members[:-1] for v in made_by(program.operations[i])}
    places: dict[int, Place] = {}
    levels = 0
    for op in program.operations:
        for v in made_by(op):
            value, (low, high) = program.values[v], bounds[v]
            if isinstance(op, ops.Quantize):
                places[v] = Place(value, 0, 255, "input", "uint8_t", symbol="in", offset=levels)
                levels += value.positions * value.channels
            elif isinstance(op, ops.TimeSum):
                low, high = min(low, 0), max(high, 0)
                kind = c_type(low, high)
                places[v] = Place(value, low, high, "sum", kind, symbol=f"s->t{v}")
            elif v in stored:
                places[v] = choose(value, low, high)
            else:
                assert v in inner
                places[v] = Place(value, low, high, "whole", c_type(low, high))
    return places

"""What integers are worth, followed through a program: a plan that says another value is refused.

A projection's step is worth its weight's scale times what its input counts, lattice = scales * quantum;
behind a chain, times the one scale that the chain was brought to. The neuron of a pair counts what its
projection emits, unit = lattice * 2^-shift * quantum, its quantum being what pools and means in between
divide by.
"""

from __future__ import annotations

import numpy as np

from ptq4snn.network.plan import Plan
from ptq4snn.network.program import (
    Affine,
    Choice,
    Clip,
    Combine,
    Gather,
    Neuron,
    Operation,
    Pool,
    Program,
    Project,
    TimeSum,
)
from ptq4snn.runtime.require import need
from ptq4snn.runtime.stepwise import made_by

__all__ = ["check_units"]

CLOSE = 1e-6
PASSING = (
    Pool,
    Gather,
    Affine,
    Clip,
    Choice,
    TimeSum,
)  # what a current may go through on its way to its neuron


def check_units(plan: Plan, program: Program) -> None:
    """Raise Refused where lattices and units do not follow from each other."""
    made = {v: op for op in program.operations for v in made_by(op)}
    chained: set[int] = set()  # values that count the scale of a chain
    for op in program.operations:
        if isinstance(op, Project):
            _lattice(plan, op, op.inputs[0] in chained)
            if plan.projections[op.name].rescale is not None:
                chained.add(op.output)
        elif isinstance(op, Neuron):
            _unit(plan, op, made)
        elif any(v in chained for v in op.inputs):
            chained.add(op.output)


def _lattice(plan: Plan, op: Project, chained: bool) -> None:
    p = plan.projections[op.name]
    counted = np.array(p.lattice) / (np.array(p.scales) * p.quantum)
    wanted = counted[0] if chained else 1.0
    need(
        bool((np.abs(counted - wanted) <= CLOSE * wanted).all()),
        f"the lattice of '{op.name}' is not its scales'",
    )


def _unit(plan: Plan, op: Neuron, made: dict[int, Operation]) -> None:
    n = plan.neurons[op.name]
    for source in _sources(made, op.inputs[0]):
        if n.emits_units and isinstance(source, Project):
            _counts_as(plan, op, source)
        if isinstance(source, Neuron) and source.potential == op.inputs[0]:  # a synapse, whose units it counts
            same = plan.neurons[source.name].unit == n.unit and n.quantum == 1 and n.emits_units
            need(same, f"the unit of '{op.name}' is not that of its synapse '{source.name}'")


def _sources(made: dict[int, Operation], value: int) -> list[Operation]:
    """What a current comes from: a projection, those that a recurrent neuron sums, a synapse."""
    source = made[value]
    while isinstance(source, PASSING) and len(source.inputs) == 1:
        source = made[source.inputs[0]]
    if isinstance(source, Combine) and all(isinstance(made[v], Project) for v in source.inputs):
        return [made[v] for v in source.inputs]
    return [source]


def _counts_as(plan: Plan, op: Neuron, source: Project) -> None:
    n = plan.neurons[op.name]
    p = plan.projections[source.name]
    if p.rescale is not None or len(p.lattice) != len(n.unit):
        return
    wanted = np.array(p.lattice) * 2.0**-p.shift * n.quantum
    fine = bool((np.abs(np.array(n.unit) - wanted) <= CLOSE * wanted).all())
    need(fine, f"the unit of '{op.name}' is not what '{source.name}' emits")

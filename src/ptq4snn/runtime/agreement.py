"""Proof that a plan and a program are of one model: that simulation and runtime take the same from them.

The program says how values are computed, the plan with which numbers; here is what both say. Exactness of
the simulation is proven as well: it carries integers in float32 below its `bound`, and the program knows how
large they can become.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.plan import OutputPlan, Plan
from ptq4snn.network.program import Neuron, Output, Pool, Program, Project, Quantize, TimeSum
from ptq4snn.network.state_layout import Layout
from ptq4snn.numerics.limits import EXACT_FLOAT32, WIDE_STATE
from ptq4snn.runtime.parameters import InputGrid, Model
from ptq4snn.runtime.require import need
from ptq4snn.runtime.unit_check import check_units

__all__ = ["check_agreement"]


def check_agreement(plan: Plan, model: Model) -> None:
    """Raise Refused where a checked program and its checked plan disagree."""
    program = model.program
    need(plan.steps == program.steps, f"the plan has {plan.steps} steps, the program {program.steps}")
    need(len(plan.outputs) == len(program.outputs), "plan and program have other outputs")
    for i, (a, b) in enumerate(zip(plan.outputs, program.outputs, strict=True)):
        _output(a, b, f"output {i}")
    ran = {op.name for op in program.operations if isinstance(op, Neuron)}
    for name in plan.neurons:
        need(name in ran, f"the neuron '{name}' of the plan is not in the program")
    _inputs(plan, model)
    _exactness(plan, model)
    check_units(plan, program)
    summed = _summed(program)
    for op in program.operations:
        if isinstance(op, Neuron):
            _elements(op, program, plan.neurons[op.name].layout)
            emits = plan.neurons[op.name].emits
            hands_on = op.potential is not None and op.carried == (emits == "carried")
            need(emits == "spikes" or hands_on, f"'{op.name}' hands on another current in the plan")
            need(op.carried <= (emits == "carried"), f"'{op.name}' hands on its state in the program only")
        if isinstance(op, (Neuron, Project)):
            late = (plan.neurons if isinstance(op, Neuron) else plan.projections)[op.name].over_time
            fine = not late or program.steps == 1 or op.inputs[0] in summed
            need(fine, f"'{op.name}' is over time in the plan, and reads no sum over time in the program")


def _output(plan: OutputPlan, out: Output, what: str) -> None:
    current = out.kind == "current"
    need(plan.projection == (out.name if current else None), f"{what} is of another projection in the plan")
    axes = [out.batch_axis] if out.time_axis is None else [out.batch_axis, out.time_axis]
    need(plan.output_scales == out.scales, f"{what} has other scales in the plan")
    pairs = [(plan.axis, out.axis)] if current or out.scales else []
    need([how for how, _ in plan.then] == [how for how, _ in out.then], f"{what} ends otherwise in the plan")
    pairs += [(a, b) for (_, a), (_, b) in zip(plan.then, out.then, strict=True)]
    rank = len(out.shape) + len(axes)
    kept = [d for d in range(rank) if d not in axes]
    for ours, theirs in pairs:
        need(ours >= -rank, f"{what} has other axes in the plan")
        axis = ours % rank
        need(axis in kept and theirs == kept.index(axis) - len(kept), f"{what} has another axis in the plan")


def _inputs(plan: Plan, model: Model) -> None:
    """Real inputs are quantized by the grid of the projection that reads them, and nothing else is."""
    made = {op.output: op.name for op in model.program.operations if isinstance(op, Quantize)}
    for op in model.program.operations:
        if not isinstance(op, Project):
            continue
        grid, source = model.projections[op.name].input, made.get(op.inputs[0])
        need(
            (grid is None) == (source is None),
            f"'{op.name}' reads the input in the plan or in the program only",
        )
        need(not plan.projections[op.name].decode, f"'{op.name}' leaves the integers in the plan")
        if grid is not None and source is not None:
            need(_same(grid, model.projections[source].input), f"'{op.name}' reads the input on another grid")


def _exactness(plan: Plan, model: Model) -> None:
    """The simulation carries in float32 what its bound says is small: then it must be small."""
    pooled = {op.inputs[0]: op.output for op in model.program.operations if isinstance(op, Pool)}
    for op in model.program.operations:
        if isinstance(op, Project):
            p = plan.projections[op.name]
            if p.bound < EXACT_FLOAT32 and not p.over_time and p.rescale is None and p.role != "output":
                values = [op.output, *([pooled[op.output]] if op.output in pooled else [])]
                peak = max(abs(end) for v in values for end in model.bounds.values[v])
                need(peak < EXACT_FLOAT32, f"'{op.name}' can reach {peak}, more than its bound in the plan")
        if isinstance(op, Neuron) and plan.neurons[op.name].bound < EXACT_FLOAT32:
            peak = _potential(op, model)
            need(peak < EXACT_FLOAT32, f"'{op.name}' can reach {peak}, more than its bound in the plan")


def _potential(op: Neuron, model: Model) -> int:
    """The largest |A|. A state of 32 bits is bounded by what its leak lets build up of its input."""
    n = model.neurons[op.name]
    if int(n.bits.max()) < WIDE_STATE or n.over_time:
        return model.bounds.potentials[op.name]
    x = max(map(abs, model.bounds.values[op.inputs[0]])) * abs(op.factor) << n.shift
    leak = float((n.charge_m * 2.0**-n.charge_n).max())
    return x + math.ceil(min(x / max(1e-9, 1 - leak), 2.0 ** (WIDE_STATE - 1)))


def _same(a: InputGrid, b: InputGrid | None) -> bool:
    if b is None:
        return False
    return all(np.array_equal(*p) for p in ((a.scales, b.scales), (a.zeros, b.zeros), (a.inside, b.inside)))


def _summed(program: Program) -> set[int]:
    """Values behind a sum over time."""
    out: set[int] = set()
    for op in program.operations:
        if isinstance(op, TimeSum) or any(v in out for v in op.inputs):
            out.add(op.output)
    return out


def _elements(op: Neuron, program: Program, layout: Layout) -> None:
    """Each state is stored once, in the channel that the plan's layout gives it."""
    value = program.values[op.output]
    count = value.positions * value.channels
    everything = np.arange(count)
    place = everything if op.element is None else op.element.array()
    need(bool((np.bincount(place, minlength=count) == 1).all()), f"'{op.name}' stores a state twice")
    channel = everything % value.channels if op.channel is None else op.channel.array()
    wanted = np.broadcast_to(_channels(layout), layout.shape).reshape(-1)
    need(np.array_equal(wanted[place], channel), f"'{op.name}' has other channels in the plan's layout")


def _channels(layout: Layout) -> NDArray[np.int64]:
    """The channel of every state, row-major over the channel axes; of size 1 along the others."""
    sizes = [n if d in layout.dims else 1 for d, n in enumerate(layout.shape)]
    return np.arange(prod(sizes), dtype=np.int64).reshape(sizes)

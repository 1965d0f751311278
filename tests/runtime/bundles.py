"""A random model as a bundle, written without torch: a plan with the model's numbers, and its program.

A plan says more than a program needs, and must agree with it. Not every random model has one: its neurons may
have channels that no axes of a state follow, or its projections read the input without a grid.
"""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations, count
from pathlib import Path
from typing import Any

import numpy as np
from runtime.programs import random_model

from ptq4snn.bundle.format import IntegerArray, write_bundle
from ptq4snn.bundle.plan_arrays import detach
from ptq4snn.network.plan import (
    InputPlan,
    MirrorPlan,
    NeuronPlan,
    OutputPlan,
    Plan,
    ProjectionPlan,
    RescalePlan,
)
from ptq4snn.network.program import Neuron, Output, Project, Quantize
from ptq4snn.network.program_json import program_to_json
from ptq4snn.network.state_layout import Layout
from ptq4snn.runtime.parameters import Model, NeuronNumbers, ProjectionNumbers

BOUND = 2**62  # no bound: whatever is carried is carried in float64


class NoPlan(Exception):
    """The model is none that could have been quantized."""


def _projection(name: str, p: ProjectionNumbers) -> ProjectionPlan:
    grid, r = p.input, p.rescale
    # a rescale brings the unit to the scales; where a multiplier is 0 nothing does
    if r is not None and not r.multipliers.all():
        raise NoPlan
    scales = None if r is None else p.unit / (r.multipliers * 2.0**-r.shifts)
    return ProjectionPlan(
        name=name, role=p.role, bits=p.bits, scales=tuple((p.unit * 2.0**p.shift).tolist()),
        lattice=tuple((p.unit * 2.0**p.shift).tolist()), shift=p.shift, quantum=1.0,
        over_time=p.over_time, bound=BOUND,
        input=None if grid is None else InputPlan(
            tuple(grid.scales.tolist()), tuple(grid.zeros.tolist()), True
        ),
        rescale=None if r is None or scales is None else RescalePlan(
            tuple(r.multipliers.tolist()), tuple(r.shifts.tolist()), r.bits, tuple(scales.tolist())
        ),
    )  # fmt: skip


def _layout(model: Model, op: Neuron) -> Layout:
    """The axes of the state along which its channel changes."""
    shape, value = model.neurons[op.name].shape, model.program.values[op.output]
    everything = np.arange(value.positions * value.channels)
    place = everything if op.element is None else op.element.array()
    channel = everything % value.channels if op.channel is None else op.channel.array()
    axes = range(len(shape))
    for dims in chain.from_iterable(combinations(axes, n) for n in range(len(shape) + 1)):
        sizes = [n if d in dims else 1 for d, n in enumerate(shape)]
        ids = np.broadcast_to(np.arange(np.prod(sizes, dtype=int)).reshape(sizes), shape).reshape(-1)
        if np.prod(sizes) == len(model.neurons[op.name].bits) and np.array_equal(ids[place], channel):
            return Layout(shape, dims)
    raise NoPlan


def _neuron(name: str, n: NeuronNumbers, layout: Layout) -> NeuronPlan:
    def pairs(m: Any, s: Any) -> Any:
        return tuple(zip(m.tolist(), s.tolist(), strict=True))

    if not n.settle_m.all():
        raise NoPlan
    scales = n.unit / (n.settle_m * 2.0**-n.settle_n)
    reals = {"scales": scales, "unit": n.unit, "theta": n.theta.astype(float), "rho": n.rho.astype(float)}
    return NeuronPlan(
        name=name, kind="pair", layout=layout, coupling="bridge", comparator=">=", reset=n.reset,
        rounding=n.rounding, v_rest=n.v_rest, shift=n.shift, quantum=1.0, over_time=n.over_time,
        emits_units=False,
        bits=tuple(n.bits.tolist()), zero=tuple(n.zero.tolist()), k=(None,) * len(n.bits),
        leak=pairs(n.charge_m * n.settle_m, n.charge_n + n.settle_n), charge=pairs(n.charge_m, n.charge_n),
        settle=pairs(n.settle_m, n.settle_n), bound=BOUND, leak_error=0.0, elements=layout.elements, steps=1,
        in_budget=True, stem=False, readout=False, zero_state=False,
        emits="carried" if len(n.lift_m) else "spikes", lift=pairs(n.lift_m, n.lift_n), most=n.most,
        **{k: tuple(v.tolist()) for k, v in reals.items()},
    )  # fmt: skip


def _output(out: Output) -> OutputPlan:
    if out.kind != "current":
        return OutputPlan(None, -1)
    taken = {out.batch_axis} if out.time_axis is None else {out.batch_axis, out.time_axis}
    rank = len(out.shape) + len(taken)
    kept = [d for d in range(rank) if d not in taken]
    return OutputPlan(out.name, kept[out.axis] - rank)


def plan_of(model: Model) -> Plan:
    program = model.program
    quantized = {op.output for op in program.operations if isinstance(op, Quantize)}
    for op in program.operations:
        if isinstance(op, Project) and (op.inputs[0] in quantized) != (
            model.projections[op.name].input is not None
        ):
            raise NoPlan
    mirrors = {}
    for name, m in model.mirrors.items():
        of = [n for n, p in model.projections.items() if len(p.unit) == len(m.signs)]
        if not of:
            raise NoPlan
        shifts = tuple(m.shifts.astype(float).tolist())
        mirrors[name] = MirrorPlan(of[0], tuple(m.signs.tolist()), shifts, -1)
    layouts = {op.name: _layout(model, op) for op in program.operations if isinstance(op, Neuron)}
    return Plan(
        recipe={}, arithmetic="integer", steps=program.steps, norms=(),
        projections={n: _projection(n, p) for n, p in model.projections.items()},
        neurons={n: _neuron(n, p, layouts[n]) for n, p in model.neurons.items()},
        outputs=tuple(map(_output, program.outputs)), mirrors=mirrors,
    )  # fmt: skip


@cache
def planned_models(number: int, operations: int = 6, work: int = 3000) -> tuple[Model, ...]:
    """The first random models that have a plan."""
    out: list[Model] = []
    for seed in count():
        model = random_model(seed, operations, work)
        try:
            plan_of(model)
        except NoPlan:
            continue
        out.append(model)
        if len(out) == number:
            return tuple(out)
    raise AssertionError


def parts_of(model: Model) -> tuple[dict[str, Any], dict[str, IntegerArray], dict[str, Any]]:
    """Header, integer arrays and float arrays of the model's bundle."""
    plan, integers, floats = detach(plan_of(model).to_dict())
    program, more, _ = detach(program_to_json(model.program), "program")
    for name, p in model.projections.items():
        integers[f"weights/{name}"] = IntegerArray(p.weight.astype(np.int32), p.bits)
        integers[f"biases/{name}"] = IntegerArray(p.bias.astype(np.int32), 32)
    shapes = {name: list(p.weight.shape) for name, p in model.projections.items()}
    header = {
        "plan": plan,
        "signature": {"projections": shapes, "neurons": list(model.neurons)},
        "program": program,
        "not_lowered": "",
    }
    return header, {**integers, **more}, dict(floats)


def write_model(model: Model, path: Path) -> None:
    write_bundle(path, *parts_of(model))

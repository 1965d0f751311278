"""A random model as a bundle, written without torch: a plan with the model's numbers, and its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.bundle.format import IntegerArray, write_bundle
from ptq4snn.bundle.plan_arrays import detach
from ptq4snn.discovery.layout import Layout
from ptq4snn.plan import InputPlan, MirrorPlan, NeuronPlan, Plan, ProjectionPlan, RescalePlan
from ptq4snn.runtime.parameters import Model, NeuronNumbers, ProjectionNumbers


def _projection(name: str, p: ProjectionNumbers) -> ProjectionPlan:
    grid, r = p.input, p.rescale
    return ProjectionPlan(
        name=name, role=p.role, bits=p.bits, scales=tuple(p.unit.tolist()),
        lattice=tuple((p.unit * 2.0**p.shift).tolist()), shift=p.shift, quantum=1.0,
        over_time=p.over_time, bound=0,
        input=None if grid is None else InputPlan(
            tuple(grid.scales.tolist()), tuple(grid.zeros.tolist()), True
        ),
        rescale=None if r is None else RescalePlan(
            tuple(r.multipliers.tolist()), tuple(r.shifts.tolist()), r.bits, tuple(r.scales.tolist())
        ),
    )  # fmt: skip


def _neuron(name: str, n: NeuronNumbers) -> NeuronPlan:
    def pairs(m: Any, s: Any) -> Any:
        return tuple(zip(m.tolist(), s.tolist(), strict=True))

    reals = {"scales": n.unit, "unit": n.unit, "theta": n.theta.astype(float), "rho": n.rho.astype(float)}
    return NeuronPlan(
        name=name, kind="pair", layout=Layout(n.shape, ()), coupling="bridge", comparator=">=", reset=n.reset,
        rounding=n.rounding, v_rest=n.v_rest, shift=n.shift, quantum=1.0, over_time=n.over_time,
        emits_units=False,
        bits=tuple(n.bits.tolist()), zero=tuple(n.zero.tolist()), k=(None,) * len(n.bits),
        leak=pairs(n.charge_m, n.charge_n), charge=pairs(n.charge_m, n.charge_n),
        settle=pairs(n.settle_m, n.settle_n), bound=0, leak_error=0.0, elements=1, steps=1, in_budget=True,
        stem=False, readout=False, zero_state=False, **{k: tuple(v.tolist()) for k, v in reals.items()},
    )  # fmt: skip


def plan_of(model: Model) -> Plan:
    mirrors = {
        n: MirrorPlan("", tuple(m.signs.tolist()), tuple(m.shifts.astype(float).tolist()), -1)
        for n, m in model.mirrors.items()
    }
    return Plan(
        recipe={}, arithmetic="integer", steps=model.program.steps, norms=(),
        projections={n: _projection(n, p) for n, p in model.projections.items()},
        neurons={n: _neuron(n, p) for n, p in model.neurons.items()}, outputs=(), mirrors=mirrors,
    )  # fmt: skip


def parts_of(model: Model) -> tuple[dict[str, Any], dict[str, IntegerArray], dict[str, Any]]:
    """Header, integer arrays and float arrays of the model's bundle."""
    plan, integers, floats = detach(plan_of(model).to_dict())
    program, more, _ = detach(model.program.to_dict(), "program")
    for name, p in model.projections.items():
        integers[f"weights/{name}"] = IntegerArray(p.weight.astype(np.int32), p.bits)
        integers[f"biases/{name}"] = IntegerArray(p.bias.astype(np.int32), 32)
    return {"plan": plan, "signature": {}, "program": program}, {**integers, **more}, dict(floats)


def write_model(model: Model, path: Path) -> None:
    write_bundle(path, *parts_of(model))

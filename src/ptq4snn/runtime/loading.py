"""A model for the runtime: from a bundle, or from a plan and its integers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ptq4snn.bundle.format import Bundle, read_bundle
from ptq4snn.bundle.plan_arrays import REFERENCE, attach
from ptq4snn.errors import BundleError
from ptq4snn.plan import Plan
from ptq4snn.runtime.bounds import prove
from ptq4snn.runtime.check import check
from ptq4snn.runtime.numbers import mirror_numbers, neuron_numbers, projection_numbers
from ptq4snn.runtime.parameters import Mirror, Model, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.program import Program

__all__ = ["WeightAndBias", "build", "load_model_file", "model_in", "model_of"]

# what looking into JSON of the wrong form can raise
WRONG_FORM = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class WeightAndBias(Protocol):
    """Integers of one projection: anything that NumPy can read."""

    @property
    def weight(self) -> Any: ...

    @property
    def bias(self) -> Any: ...


class _Stored:
    def __init__(self, arrays: Mapping[str, Any], name: str) -> None:
        self.weight, self.bias = arrays[f"weights/{name}"], arrays[f"biases/{name}"]


def load_model_file(path: str | Path) -> Model:
    """The model of a bundle, checked and bounded before anything of it runs."""
    bundle = read_bundle(path)
    try:
        return model_in(bundle)
    except BundleError as why:
        raise BundleError(f"{path}: {why}") from why


def model_in(bundle: Bundle) -> Model:
    """The model of a bundle that was read."""
    if "plan" not in bundle.plan:
        raise BundleError("it holds no quantized model; give a bundle that ptq4snn quantize wrote")
    if bundle.plan.get("program") is None:
        why = " ".join(str(bundle.plan.get("not_lowered") or "make the bundle again").split())[:500]
        raise BundleError(f"it has no integer program, for the model could not be lowered: {why}")
    arrays: dict[str, Any] = {n: a.values for n, a in bundle.integers.items()} | dict(bundle.floats)
    try:
        header = {key: bundle.plan[key] for key in ("plan", "program")}
        _refuse_repeats(header)
        header = attach(header, arrays)
        program, plan = Program.from_dict(header["program"]), Plan.from_dict(header["plan"])
        integers = {name: _Stored(arrays, name) for name in plan.projections}
    except WRONG_FORM as why:
        raise BundleError(f"its program or plan is incomplete ({why}); make the bundle again") from why
    return model_of(program, plan, integers)


def _refuse_repeats(header: Any) -> None:
    """Every array belongs to one place: a small file must not unfold into a large one."""
    seen: set[str] = set()
    level = [header]
    while level:
        item = level.pop()
        if isinstance(item, dict) and set(item) == {REFERENCE}:
            if item[REFERENCE] in seen:
                raise ValueError(f"it refers to the array {item[REFERENCE]!r} twice")
            seen.add(item[REFERENCE])
        elif isinstance(item, (dict, list)):
            level += item.values() if isinstance(item, dict) else item


def model_of(program: Program, plan: Plan, integers: Mapping[str, WeightAndBias]) -> Model:
    """The model of a plan and the weight and bias integers of its projections."""
    if plan.arithmetic != "integer":
        raise BundleError('only arithmetic "integer" can be run; quantize with it')
    try:
        projections = {
            name: projection_numbers(p, np.asarray(integers[name].weight), np.asarray(integers[name].bias))
            for name, p in plan.projections.items()
        }
        neurons = {name: neuron_numbers(n) for name, n in plan.neurons.items()}
        mirrors = {name: mirror_numbers(name, m) for name, m in plan.mirrors.items()}
    except WRONG_FORM as why:
        raise BundleError(f"the plan is not whole ({why}); make the bundle again") from why
    return build(program, projections, neurons, mirrors)


def build(
    program: Program,
    projections: dict[str, ProjectionNumbers],
    neurons: dict[str, NeuronNumbers],
    mirrors: dict[str, Mirror],
) -> Model:
    """Check a program with its numbers and prove its bounds."""
    check(program, projections, neurons, mirrors)
    return Model(program, projections, neurons, mirrors, prove(program, projections, neurons, mirrors))

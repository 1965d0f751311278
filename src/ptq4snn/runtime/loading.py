"""A model from a bundle, or from a plan and its integers: checked, bounded, and only then used.

`contents_of` is what both `ptq4snn.runtime.load` and `ptq4snn.load` read a bundle with, so that neither takes
what the other refuses. It needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptq4snn.bundle.format import Bundle, read_bundle
from ptq4snn.bundle.plan_arrays import REFERENCE, attach
from ptq4snn.errors import BundleError
from ptq4snn.network.plan import Plan, ProjectionPlan
from ptq4snn.network.program import Program
from ptq4snn.network.program_json import program_from_json
from ptq4snn.runtime.agreement import check_agreement
from ptq4snn.runtime.bounds import Signed, prove, prove_for
from ptq4snn.runtime.check import check
from ptq4snn.runtime.demand import Demand, Limits, demand_of
from ptq4snn.runtime.numbers import mirror_numbers, neuron_numbers, projection_numbers
from ptq4snn.runtime.operation_check import Numbers
from ptq4snn.runtime.parameters import Mirror, Model, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.plan_check import check_names, check_neuron, check_plan, check_projection
from ptq4snn.runtime.require import Refused, need, wholes

__all__ = [
    "Contents",
    "Family",
    "Stored",
    "WeightAndBias",
    "build",
    "contents_of",
    "estimate",
    "load_model_file",
    "model_of",
    "read_contents",
]

# what looking into JSON of the wrong form can raise
WRONG_FORM = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
KEYS = {"plan", "signature", "program", "not_lowered"}
MAYBE = {"source"}  # bundles that were written before have none
MAX_REFERRED = 2**24  # numbers of all arrays that plan and program refer to: they become Python's
NUMBER = 56  # bytes of one of them: in a list, in a tuple, and itself
MAX_SENTENCE = 2**14
DEFAULT = Limits()
FLOATS = "floats/"


class WeightAndBias(Protocol):
    """Integers of one projection: anything that NumPy can read."""

    @property
    def weight(self) -> Any: ...

    @property
    def bias(self) -> Any: ...


@dataclass(frozen=True)
class Stored:
    weight: NDArray[Any]
    bias: NDArray[Any]


@dataclass(frozen=True)
class Contents:
    """What a bundle of a quantized model holds; everything is checked. `model` is None without a program."""

    plan: Plan
    signature: dict[str, Any]  # "projections": shapes by name, "neurons": names
    integers: dict[str, Stored]  # of projections
    floats: dict[str, NDArray[Any]]  # other parameters and buffers
    not_lowered: str
    source: str | None  # hash of the float weights it was made from (ptq4snn.discovery.model_digest)
    model: Model | None


def read_contents(path: str | Path, limits: Limits = DEFAULT) -> Contents:
    """The contents of a bundle, or BundleError in one sentence; so also above the limits."""
    bundle = read_bundle(path, limits.memory)
    with _about(path):
        return contents_of(bundle, limits)


def load_model_file(path: str | Path, limits: Limits = DEFAULT) -> Model:
    """The model of a bundle, checked and bounded before anything of it runs."""
    found = read_contents(path, limits)
    if found.model is None:
        raise _without_program(path, found.not_lowered)
    return found.model


def estimate(path: str | Path, limits: Limits = DEFAULT) -> Demand:
    """What a bundle's model asks for, told before its tables are unfolded and its bounds proven. The limits
    hold for reading the file only: `Demand.check` compares the rest."""
    bundle = read_bundle(path, limits.memory)
    with _about(path):
        parts = _parts_of(bundle, limits)
        if parts.program is None:
            raise _without_program(path, str(bundle.plan.get("not_lowered", "")))
        numbers = numbers_of(parts.plan, parts.integers)
        check(parts.program, numbers.projections, numbers.neurons, numbers.mirrors)
        return demand_of(parts.program, numbers)


@contextmanager
def _about(path: str | Path) -> Iterator[None]:
    try:
        yield
    except BundleError as why:
        raise BundleError(f"{path}: {why}") from why


def _without_program(path: str | Path, not_lowered: str) -> BundleError:
    why = " ".join(not_lowered.split())[:500] or "make the bundle again"
    return BundleError(f"{path}: it has no integer program, for the model could not be lowered: {why}")


@dataclass(frozen=True)
class _Parts:
    """What a bundle is put together from; its form is right, its numbers are not checked."""

    plan: Plan
    program: Program | None
    integers: dict[str, Stored]


def _parts_of(bundle: Bundle, limits: Limits) -> _Parts:
    header = bundle.plan
    if "plan" not in header:
        raise BundleError("it holds no quantized model; give a bundle that ptq4snn quantize wrote")
    arrays: dict[str, Any] = {n: a.values for n, a in bundle.integers.items()} | dict(bundle.floats)
    with _whole("its header"):
        need(set(header) - MAYBE == KEYS, f"it has not exactly {', '.join(sorted(KEYS))}")
        referred = _referred({key: header[key] for key in ("plan", "program")}, arrays, limits)
    with _whole("its plan"):
        plan = Plan.from_dict(attach(header["plan"], arrays))
        check_plan(plan)
    with _whole("its program"):
        stored = attach(header["program"], arrays)
        program = None if stored is None else program_from_json(stored)
    with _whole("its arrays"):
        integers = {
            n: Stored(_levels(p, arrays[f"weights/{n}"]), arrays[f"biases/{n}"])
            for n, p in plan.projections.items()
        }
        own = {f"{kind}/{n}" for kind in ("weights", "biases") for n in integers}
        own |= {n for n in bundle.floats if n.startswith(FLOATS)}
        need(not own & referred, "the plan refers to weights, biases or floats")
        odd = [n for n in arrays if n not in own and n not in referred]
        need(not odd, f"nothing refers to the array {odd[0][:200]!r}" if odd else "")
    return _Parts(plan, program, integers)


def _levels(p: ProjectionPlan, stored: NDArray[Any]) -> NDArray[Any]:
    """The weights of a projection, of which an odd one is stored as (W - 1) / 2."""
    return 2 * stored + 1 if p.odd is True else stored


def contents_of(bundle: Bundle, limits: Limits = DEFAULT) -> Contents:
    """The contents of a bundle that was read."""
    parts, header = _parts_of(bundle, limits), bundle.plan
    plan, program, integers = parts.plan, parts.program, parts.integers
    numbers = numbers_of(plan, integers)
    with _whole("its signature"):
        _signature(header["signature"], plan, integers)
        text = header["not_lowered"]
        need(isinstance(text, str) and len(text) <= MAX_SENTENCE, "not_lowered is no sentence")
        source = header.get("source")
        need("source" not in header or _is_hash(source), "source is no SHA-256 in hexadecimal digits")
    model = None if program is None else _model(program, plan, numbers, limits)
    floats = {n.removeprefix(FLOATS): a for n, a in bundle.floats.items() if n.startswith(FLOATS)}
    return Contents(plan, header["signature"], integers, floats, header["not_lowered"], source, model)


def _is_hash(x: Any) -> bool:
    return isinstance(x, str) and len(x) == 64 and set(x) <= set("0123456789abcdef")


@contextmanager
def _whole(what: str) -> Iterator[None]:
    """What does not hold of `what`, in one sentence."""
    try:
        yield
    except Refused as why:
        raise BundleError(f"{what}: {why}; make the bundle again") from why
    except WRONG_FORM as why:
        reason = " ".join(str(why).split())[:200] or type(why).__name__
        raise BundleError(f"{what} is incomplete ({reason}); make the bundle again") from why


def _referred(header: Any, arrays: Mapping[str, Any], limits: Limits) -> set[str]:
    """Names of the arrays that plan and program refer to. Every array belongs to one place: a small file must
    not unfold into a large one."""
    seen: set[str] = set()
    level, count, most = [header], 0, min(MAX_REFERRED, limits.memory // NUMBER)
    while level:
        item = level.pop()
        if isinstance(item, dict) and set(item) == {REFERENCE}:
            name = item[REFERENCE]
            need(isinstance(name, str) and name in arrays, "it refers to an array that is not there")
            need(name not in seen, f"it refers to the array {name[:200]!r} twice")
            seen.add(name)
            count += arrays[name].size
            need(count <= most, f"it refers to more than {most} numbers")
        elif isinstance(item, (dict, list)):
            level += item.values() if isinstance(item, dict) else item
    return seen


def _signature(found: Any, plan: Plan, integers: Mapping[str, Stored]) -> None:
    """The model that the bundle fits has what the plan has, in the same shapes."""
    need(isinstance(found, dict) and set(found) == {"projections", "neurons"}, "it has other fields")
    need(isinstance(found["projections"], dict), "its projections are no object")
    need(isinstance(found["neurons"], list), "its neurons are no list")
    check_names(found["projections"], "its projections")
    check_names(found["neurons"], "its neurons")
    for shape in found["projections"].values():
        need(isinstance(shape, list), "a shape is no list")
        wholes(tuple(shape), 0, 2**31, "a shape", 10)
    for name, stored in integers.items():
        there = found["projections"].get(name)
        need(there == list(stored.weight.shape), f"the projection '{name}' has another shape in the plan")
    neurons = set(found["neurons"])
    need(all(name in neurons for name in plan.neurons), "a neuron of the plan is missing")


def numbers_of(plan: Plan, integers: Mapping[str, WeightAndBias]) -> Numbers:
    """The numbers of a plan and the weight and bias integers of its projections, all of it checked."""
    with _whole("the plan"):
        check_plan(plan)
    projections, neurons, mirrors = {}, {}, {}
    for name, p in plan.projections.items():
        with _whole(f"the projection '{name}'"):
            need(p.name == name, "it has another name inside")
            stored = integers[name]
            projections[name] = projection_numbers(p, np.asarray(stored.weight), np.asarray(stored.bias))
            check_projection(p, projections[name])
    for name, n in plan.neurons.items():
        with _whole(f"the neuron '{name}'"):
            need(n.name == name, "it has another name inside")
            neurons[name] = neuron_numbers(n)
            check_neuron(n, neurons[name])
    for name, m in plan.mirrors.items():
        with _whole(f"the mirror '{name}'"):
            mirrors[name] = mirror_numbers(name, m)
    return Numbers(projections, neurons, mirrors)


def model_of(program: Program, plan: Plan, integers: Mapping[str, WeightAndBias]) -> Model:
    """The model of a program, a plan and the weight and bias integers of its projections."""
    return _model(program, plan, numbers_of(plan, integers))


@dataclass
class Family:
    """Models that differ in the numbers of their neurons only, as a search tries them: program and weights
    are those of the first, which was checked whole. Plans of others are of our own making, so it is proven
    that nothing overflows in the steps of the program, and no more."""

    first: Model
    signed: Signed = field(default_factory=dict)

    def member(self, plan: Plan) -> Model:
        """The model of another plan for the same integers."""
        known = self.first
        with _whole("the plan"):
            neurons = {name: neuron_numbers(n) for name, n in plan.neurons.items()}
            tables = known.projections, neurons, known.mirrors
            bounds = prove_for(known.program, *tables, known.program.steps, self.signed)
            model = known.with_neurons(neurons, bounds)
            check_agreement(plan, model)
        return model


def _model(program: Program, plan: Plan, numbers: Numbers, limits: Limits | None = None) -> Model:
    tables = dict(numbers.projections), dict(numbers.neurons), dict(numbers.mirrors)
    model = build(program, *tables, limits=limits)
    with _whole("plan and program disagree"):
        check_agreement(plan, model)
    return model


def build(
    program: Program,
    projections: dict[str, ProjectionNumbers],
    neurons: dict[str, NeuronNumbers],
    mirrors: dict[str, Mirror],
    *,
    limits: Limits | None = None,
) -> Model:
    """Check a program with its numbers, refuse what is above the limits, and prove its bounds."""
    check(program, projections, neurons, mirrors)
    if limits is not None:
        demand_of(program, Numbers(projections, neurons, mirrors)).check(limits)
    return Model(program, projections, neurons, mirrors, prove(program, projections, neurons, mirrors))

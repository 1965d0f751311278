"""Proof that a plan from a file is a plan: types, ranges, lengths, and whether its numbers go together.

Whatever a plan says twice must agree. A state's step is `ratio` units of A, so of every channel

    settle = 1 / ratio,   charge = leak * ratio,   k = log2(ratio) - shift

and a rescale brings the projection's unit to its `scales`. All are fixed-point numbers of 15 bits or exact,
so that a thousandth of difference is not a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ptq4snn.network.edit import KINDS as EDIT_KINDS
from ptq4snn.network.edit import Edit
from ptq4snn.network.plan import InputPlan, MirrorPlan, NeuronPlan, Plan, ProjectionPlan, RescalePlan
from ptq4snn.numerics.finishing import FINISHES
from ptq4snn.numerics.limits import INT64_SHIFT
from ptq4snn.runtime.parameters import NeuronNumbers, ProjectionNumbers, Reals
from ptq4snn.runtime.require import MAX_ELEMENTS, MAX_RANK, Refused, need, whole, wholes
from ptq4snn.runtime.state import MAX_STEPS

__all__ = ["check_names", "check_neuron", "check_plan", "check_projection", "real", "word"]

MAX_NAME = 1000  # characters of a module path
MAX_NAMES = 2**16  # modules
MAX_RECIPE = 10_000  # values
MAX_BOUND = 2**63
LEAST = 2.0**-512  # of scales: neither they nor their ratios under- or overflow
MOST = 2.0**512
FIXED_POINT_ERROR = 1e-3  # more than a factor of 15 bits is off
LEAST_CHARGE = 2.0**-29  # a charge may be rounded up to about it
COMPARATORS = (">=", ">")
EMITS = ("spikes", "current", "carried")


def check_names(names: Any, what: str) -> None:
    """Module paths: text of one line, each once."""
    need(isinstance(names, (list, tuple, dict)) and len(names) <= MAX_NAMES, f"{what} are no list of names")
    fine = all(isinstance(n, str) and len(n) <= MAX_NAME and n.isprintable() for n in names)
    need(fine, f"{what} have a name that is no text of one line")
    need(len(set(names)) == len(names), f"{what} have a name twice")


def check_plan(plan: Plan) -> None:
    """What does not belong to one neuron or projection."""
    whole(plan.steps, 1, MAX_STEPS, "steps")
    need(plan.arithmetic == "integer", 'only arithmetic "integer" can be run')
    need(isinstance(plan.mixed, bool), "mixed is neither true nor false")
    for name, x in (("beta", plan.beta), ("percentile", plan.percentile)):
        need(x is None or _finite(x), f"{name} is no number")
    for what in ("norms", "projections", "neurons", "mirrors", "excluded"):
        check_names(getattr(plan, what), what)
    _recipe(plan.recipe)
    need(0 < len(plan.outputs) <= MAX_NAMES, "it has no outputs")
    need(len(plan.step_outputs) <= MAX_NAMES, "it has too many outputs of a step")
    for out in (*plan.outputs, *plan.step_outputs):
        whole(out.axis, -2 * MAX_RANK, -1 if out.projection is not None else 0, "the axis of an output")
        worth = out.output_scales
        need(not worth or (out.projection is None and out.axis < 0), "an output has scales of two kinds")
        need(isinstance(worth, tuple) and all(map(_finite, worth)), "a scale of an output is no number")
        known = out.projection is None or (
            isinstance(out.projection, str) and out.projection in plan.projections
        )
        need(known, "an output is of a projection that is not there")
        _then(out.then)
    for m in plan.mirrors.values():
        _mirror(plan, m)
    need(len(plan.edits) <= MAX_NAMES, "it has too many edits")
    check_names([e.path for e in plan.edits if isinstance(e.child, str)], "edits")
    for e in plan.edits:
        _edit(e)


def _then(then: Any) -> None:
    need(isinstance(then, tuple) and len(then) <= MAX_RANK, "what follows an output is no short list")
    for step in then:
        need(isinstance(step, tuple) and len(step) == 2, "what follows an output is no pair")
        need(step[0] in FINISHES, "an output ends with something odd")
        whole(step[1], -2 * MAX_RANK, -1, "the axis of a softmax or an argmax")


def _recipe(recipe: Any) -> None:
    """Only shown: plain JSON of a reasonable size."""
    need(isinstance(recipe, dict), "the recipe is no object")
    level, count = [recipe], 0
    while level:
        x = level.pop()
        count += 1
        need(count <= MAX_RECIPE and len(level) <= MAX_RECIPE, "the recipe is too long")
        if isinstance(x, dict):
            check_names(x, "the recipe's fields")
            level += x.values()
        elif isinstance(x, list):
            level += x
        elif isinstance(x, str):
            need(len(x) <= MAX_NAME and x.isprintable(), "the recipe has text that is no line")


def _edit(e: Edit) -> None:
    """Only a model that is built again reads them."""
    need(e.kind in EDIT_KINDS, "an edit is of no known kind")
    need(isinstance(e.child, str) and e.child.isidentifier(), "an edit has no name")
    check_names([e.scope, *e.parameters], "an edit's modules and parameters")
    whole(e.period, 1, MAX_STEPS, "the period of an edit")
    whole(e.turn, 0, e.period - 1, "the turn of an edit")
    whole(e.place, 0, MAX_NAMES, "the place of an edit")
    whole(e.operand, 0, 1, "the operand of an edit")
    whole(e.axis, -2 * MAX_RANK, 0, "the axis of an edit")
    shape = wholes(e.shape, 1, MAX_ELEMENTS, "the shape of an edit", 2 + MAX_RANK)
    need(len(shape) > 0 and prod(shape) <= MAX_ELEMENTS, "an edit has no shape, or one too large")
    need((len(shape) == 1) == (e.kind != "plain"), "an edit has the shape of another kind")
    rank = len(shape) - 2
    if rank > 0:
        need([len(s) for s in e.settings] == [rank, rank, rank, 1], "an edit has not the settings it needs")
        for setting in e.settings:
            wholes(setting, 0, MAX_ELEMENTS, "a setting of an edit", MAX_RANK)


def _mirror(plan: Plan, m: MirrorPlan) -> None:
    whole(m.axis, -2 * MAX_RANK, -1, "the axis of a mirror")
    known = isinstance(m.projection, str) and m.projection in plan.projections
    need(known, "a mirror is of a projection that is not there")
    channels = len(plan.projections[m.projection].lattice)
    need(len(m.signs) == len(m.shifts) == channels, f"a mirror has not {channels} channels")
    _integers(m.signs, "a sign of a mirror")


def check_projection(p: ProjectionPlan, n: ProjectionNumbers) -> None:
    """Of a projection whose numbers are whole: lengths, and what the simulation reads besides them."""
    channels = n.weight.shape[0] if n.weight.ndim else 0
    need(n.weight.ndim >= 2 and n.weight.size > 0, "its weight has no channels")
    need(n.weight.ndim <= 2 + MAX_RANK, f"its weight has more than {MAX_RANK} axes")
    need(n.bias.shape[-1] == channels, f"it has {n.bias.shape[-1]} biases for {channels} channels")
    sizes = wholes(p.places, 1, MAX_ELEMENTS, "the places of its biases", MAX_RANK)
    placed = n.bias.shape[:-1] == ((prod(sizes),) if sizes else ())
    need(placed, "it has biases for other positions than it says")
    _scales(p.scales, channels, "scales")
    lattice = _scales(p.lattice, channels, "lattice")
    real(p.quantum, LEAST, MOST, "the quantum")
    whole(p.bound, 0, MAX_BOUND, "the bound")
    need(isinstance(p.decode, bool), "decode is neither true nor false")
    if p.input is not None:
        _input(p.input)
    if p.rescale is not None:
        _rescale(p.rescale, n, lattice * 2.0**-p.shift)


def _input(x: InputPlan) -> None:
    need(len(x.scales) == len(x.zeros), "its input has other scales than zeros")
    _integers((*x.zeros, *x.raw_zeros), "a zero of its input")
    raw = (len(x.raw_scales), len(x.raw_zeros))
    need(raw in ((0, 0), (len(x.scales),) * 2), "its input is read by other scales than it has")
    need(isinstance(x.exact, bool), "exact is neither true nor false")


def _rescale(r: RescalePlan, n: ProjectionNumbers, unit: Reals) -> None:
    assert n.rescale is not None
    scales = _scales(r.scales, len(unit), "the rescale's scales")
    _integers((*r.multipliers, *r.shifts), "a number of its rescale")
    factors = n.rescale.multipliers, n.rescale.shifts
    need(all(len(v) == len(unit) for v in factors), f"its rescale has not {len(unit)} channels")
    _alike(
        n.rescale.multipliers * 2.0**-n.rescale.shifts, unit / scales, "its rescale is not that of its scales"
    )


def check_neuron(p: NeuronPlan, n: NeuronNumbers) -> None:
    """Of a neuron whose numbers are whole: lengths, and what the simulation reads besides them."""
    channels = len(n.bits)
    for name in ("kind", "coupling"):
        word(getattr(p, name), f"the {name}")
    need(p.emits in EMITS, "what it emits is neither spikes nor a current")
    need(p.emits == "spikes" or n.most == 1, "it counts spikes and emits a current")
    need(len(n.lift_m) == (channels if p.emits == "carried" else 0), "its lift has not its channels")
    _integers([i for pair in p.lift for i in pair], "a number of its lift")
    need(p.comparator in COMPARATORS, "its comparator is neither >= nor >")
    for name in ("in_budget", "stem", "readout", "zero_state"):
        need(isinstance(getattr(p, name), bool), f"{name} is neither true nor false")
    whole(p.steps, 1, MAX_STEPS, "steps")
    whole(p.bound, 0, MAX_BOUND, "the bound")
    real(p.quantum, LEAST, MOST, "the quantum")
    real(p.leak_error, 0, MOST, "the leak's error")
    _layout(p, channels)
    vectors = (n.zero, n.theta, n.rho, n.charge_m, n.settle_m, n.unit, p.k, p.leak)
    need(all(len(v) == channels for v in vectors), f"its vectors have not {channels} channels")
    for name in ("bits", "zero"):
        _integers(getattr(p, name), name)
    _integers([i for pair in (*p.charge, *p.settle) for i in pair], "a number of charge or settle")
    _ratios(p, n, channels)


def _layout(p: NeuronPlan, channels: int) -> None:
    """The state's shape, and that its channel axes have so many channels."""
    shape = wholes(p.layout.shape, 1, MAX_ELEMENTS, "the state's shape", MAX_RANK)
    dims = wholes(p.layout.dims, 0, len(shape) - 1, "a channel axis", MAX_RANK)
    need(all(a < b for a, b in pairwise(dims)), "its channel axes are not in order")
    need(prod(shape) <= MAX_ELEMENTS, f"its state has more than {MAX_ELEMENTS} elements")
    need(p.layout.channels == channels, f"its channel axes have {p.layout.channels} channels, not {channels}")
    need(p.elements == p.layout.elements, "its elements are not those of its layout")


def _ratios(p: NeuronPlan, n: NeuronNumbers, channels: int) -> None:
    """The equations above."""
    scales, unit = _scales(p.scales, channels, "scales"), _scales(p.unit, channels, "unit")
    ratio = scales / unit
    pairs = [wholes(pair, 0, 2**62, "a leak", 2) for pair in p.leak]
    need(all(len(pair) == 2 and pair[1] <= 2 * INT64_SHIFT for pair in pairs), "a leak is no pair")
    leak = np.array([m * 2.0**-s for m, s in pairs])
    _alike(n.settle_m * 2.0**-n.settle_n, 1 / ratio, "settle is not that of its scales")
    charge = n.charge_m * 2.0**-n.charge_n
    _alike(charge, leak * ratio, "charge is not that of its scales and leak", LEAST_CHARGE)
    for k, r in zip(p.k, ratio.tolist(), strict=True):
        if k is not None:
            exponent = whole(k, -INT64_SHIFT, INT64_SHIFT, "k") + p.shift
            need(abs(r * 2.0**-exponent - 1) <= FIXED_POINT_ERROR, "k is not that of its scales")


def _alike(found: Reals, wanted: Reals, problem: str, least: float = 0.0) -> None:
    need(bool((np.abs(found - wanted) <= FIXED_POINT_ERROR * np.abs(wanted) + least).all()), problem)


def _integers(values: Sequence[Any], what: str) -> None:
    """Whole numbers that are not carried in floats; their range is checked with the numbers."""
    need(all(type(x) is int for x in values), f"{what} is no whole number")


def _scales(x: Any, channels: int, what: str) -> Reals:
    """Positive numbers, one for each channel."""
    need(isinstance(x, Sequence) and len(x) == channels, f"{what} are not {channels} numbers")
    for value in x:
        real(value, LEAST, MOST, what)
    return np.array(x, dtype=np.float64)


def real(x: Any, low: float, high: float, what: str) -> float:
    if not _finite(x) or not low <= x <= high:
        raise Refused(f"{what}: this is no number in {low:g} .. {high:g}")
    return float(x)


def _finite(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < MOST * 2  # nor NaN


def word(x: Any, what: str) -> str:
    if not isinstance(x, str) or len(x) > MAX_NAME or not x.isprintable():
        raise Refused(f"{what} is no line of text")
    return x

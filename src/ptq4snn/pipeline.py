"""PTQ4SNN, the paper's algorithm: observe, allocate, bridge, freeze.

`prepare` does once what every recipe needs (trace, fold, one float pass); `run` carries out one recipe on it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ptq4snn.allocation.mixed import allocate_bits
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.lattice import Lattice, build_lattice
from ptq4snn.discovery.exclusion import excluded_modules
from ptq4snn.errors import BundleError, ExactnessError, RecipeError, UnsupportedOperation
from ptq4snn.evaluation.report import make_report
from ptq4snn.hints import hint
from ptq4snn.lowering import lower
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import same_draws
from ptq4snn.network.plan import Plan
from ptq4snn.prepare import Prepared, prepare
from ptq4snn.recipe import Recipe
from ptq4snn.rounding.stage import round_weights
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import model_of
from ptq4snn.runtime.native import available
from ptq4snn.tuning.correction import corrected_biases
from ptq4snn.tuning.states import tune_states
from ptq4snn.tuning.tuning_traces import float_traces
from ptq4snn.words import WIDTHS

__all__ = ["Prepared", "prepare", "run"]


def run(prepared: Prepared, recipe: Recipe) -> QuantizedModel:
    """Quantize a prepared model by one recipe."""
    check_overrides(prepared, recipe)
    lattice = settle_lattice(prepared, recipe)  # weights to integers
    start = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    model = QuantizedModel(prepared.model, start.plan(start.uniform_bits()), start.integers())
    keep_program(prepared, model)  # what is tried from here on runs on the packed runtime
    results = []
    for objective in objectives(start):
        traces = dict(float_traces(prepared)) if objective == "replay" else {}
        assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe, traces)
        bits, best, trials = allocate_bits(prepared, assembly, model)  # bits per channel
        choices = [(bits, best)]
        if best is not None and recipe.uniform_competes and recipe.membrane in WIDTHS:
            choices.append((assembly.uniform_bits(), None))
        for bits, trial in choices:
            plan = tune_states(prepared, assembly, model, bits)  # scales: the bridge follows the bits
            results.append(Result(assembly, _noted(plan, trial), trials))
    chosen = nearest_to_float(prepared, model, results)
    model.use(chosen.plan)
    warn_if_all_protected(chosen.assembly)
    prove_bounds(model)
    prove_program(prepared, model)
    model.report = make_report(prepared, chosen.assembly, model, chosen.trials)
    return model


def keep_program(prepared: Prepared, model: QuantizedModel) -> None:
    """Lower the model for the runtime. A model without a program works here as well."""
    sample = (prepared.held_out or prepared.kept)[0]
    try:
        model.program = lower(model, sample, prepared.batch_axis)
    except UnsupportedOperation as why:
        model.not_lowered = str(why)


def prove_bounds(model: QuantizedModel) -> None:
    """No accumulator of the program overflows, whatever the input; else there is no program."""
    if model.program is None:
        return
    try:
        model_of(model.program, model.plan, {name: i.cpu() for name, i in model.integers.items()})
    except BundleError as why:
        model.program, model.not_lowered = None, str(why)


def prove_program(prepared: Prepared, model: QuantizedModel) -> None:
    """On held-out samples the program gives the outputs of the simulation, bit for bit, or there is no
    model."""
    if model.program is None:
        return
    x = (prepared.held_out or prepared.kept)[0]
    if x.is_floating_point():
        x = x.float()
    if not any(available()):  # NumPy is slower
        x = x.narrow(prepared.batch_axis, 0, min(2, x.shape[prepared.batch_axis]))
    runtime = Runtime(model_of(model.program, model.plan, {n: i.cpu() for n, i in model.integers.items()}))
    y = runtime(x.cpu().numpy())
    found = [torch.from_numpy(array) for array in (y if isinstance(y, tuple) else (y,))]
    model.reset_state()
    with torch.no_grad(), same_draws():
        expected = [y.cpu() for y in tree_flatten(model(x))[0] if isinstance(y, Tensor)]
    model.reset_state()
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.shape != b.shape or not torch.equal(a, b):
            raise ExactnessError(
                f"output {number} of the integer program is not that of the quantized model: "
                f"{a.numel() if a.shape != b.shape else int((a != b).sum())} of {a.numel()} values differ on "
                f"held-out samples. This is a fault of ptq4snn, so nothing was made; please report the model"
            )


def objectives(assembly: Assembly) -> tuple[str, ...]:
    """What the states are judged by: one way, or both to choose from."""
    if not any(map(assembly.bridged, assembly.lattice.neurons)):
        return ("squared_error",)
    chosen = assembly.recipe.objective
    return ("squared_error", "replay") if chosen == "auto" else (chosen,)


@dataclass(frozen=True)
class Result:
    """One way to quantize the states."""

    assembly: Assembly
    plan: Plan
    trials: list[Trial]


def _noted(plan: Plan, best: Trial | None) -> Plan:
    """The plan with the allocation it came from."""
    if best is None:
        return plan
    return replace(plan, beta=best.beta, percentile=best.percentile, mixed=True)


def nearest_to_float(prepared: Prepared, model: QuantizedModel, results: list[Result]) -> Result:
    """Of several results the one with the least divergence on the held-out samples."""
    if len(results) == 1:
        return results[0]

    def cost(result: Result) -> tuple[float, float]:
        model.use(result.plan)
        return Trial(None, None, *prepared.divergence(model), result.plan.average_bits()).cost()

    return min(results, key=cost)


def check_overrides(prepared: Prepared, recipe: Recipe) -> None:
    """An override that fits no module is a misspelling."""
    if excluded_modules(prepared.model, recipe) != prepared.excluded:
        raise RecipeError("other modules are excluded than when the model was prepared; prepare it again")
    names = [*prepared.folded.discovery.neurons, *prepared.folded.discovery.projections]
    modules = [name for name, _ in prepared.model.named_modules() if name]
    for pattern, rule in recipe.overrides.items():
        if not any(fnmatchcase(n, pattern) for n in (modules if rule.exclude else names)):
            about = hint(pattern, names, "`ptq4snn inspect` lists the names", alike=0.3)
            raise RecipeError(
                f"the override {pattern!r} fits no neuron and no projection of the model: {about}"
            )


def warn_if_all_protected(assembly: Assembly) -> None:
    """A network may have no state that the budget could be spent on."""
    if assembly.recipe.coupling == "none" or any(map(assembly.in_budget, assembly.lattice.neurons)):
        return
    warnings.warn(
        "no state is inside the budget: every neuron is an output's membrane, without a carried state, "
        "overridden, or the first one of a network whose others are; overrides and first_membrane set widths",
        stacklevel=3,
    )


def settle_lattice(prepared: Prepared, recipe: Recipe) -> Lattice:
    """Weights to integers: scales first (jointly with the states' for transformers), then their rounding."""
    folded, seen = prepared.folded, prepared.seen
    lattice = build_lattice(folded, seen, recipe)
    if recipe.weights is None:
        return lattice
    joint = folded.discovery.transformer if recipe.joint is None else recipe.joint
    scales = {}
    if joint and recipe.coupling in ("bridge", "layerwise"):
        scales = joint_scales(Assembly(folded, seen, lattice, recipe), recipe)
        lattice = build_lattice(folded, seen, recipe, scales)
    integers = {} if recipe.rounding == "nearest" else round_weights(prepared, lattice, recipe)
    if integers:
        lattice = build_lattice(folded, seen, recipe, scales, integers)
    if recipe.correction != "none":
        biases = corrected_biases(prepared, lattice)
        lattice = build_lattice(folded, seen, recipe, scales, integers, biases)
    return lattice

"""PTQ4SNN, the paper's algorithm: observe, allocate, bridge, freeze.

`prepare` does once what every recipe needs (trace, fold, one float pass); `run` carries out one recipe on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ptq4snn.allocation.mixed import Allocation, allocate_bits, is_mixed
from ptq4snn.allocation.search import Trial, preferred
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import JOINT, joint_scales
from ptq4snn.bridge.joint_streams import joint_stream_scales
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.errors import RecipeError
from ptq4snn.evaluation.neurobench import footprint
from ptq4snn.evaluation.noise import jittered_logits
from ptq4snn.evaluation.report import make_report
from ptq4snn.freezing import build_model, frozen
from ptq4snn.heap import give_back, sparing
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.prepare import check_overrides, prepare
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe
from ptq4snn.rounding.stage import round_weights
from ptq4snn.rounding.widths import with_weight_widths
from ptq4snn.stages import JUDGING
from ptq4snn.tuning.correction import corrected_biases
from ptq4snn.tuning.distillation import distil
from ptq4snn.tuning.judging import judge
from ptq4snn.tuning.states import tune_states
from ptq4snn.tuning.tuning_traces import float_traces

__all__ = ["Prepared", "prepare", "run"]


def run(prepared: Prepared, recipe: Recipe) -> QuantizedModel:
    """Quantize a prepared model by one recipe; ranges and firing rates were collected by `prepare`.

    The paper's algorithm, in its order. Where the recipe leaves open what a good k_c is, or whether mixed
    widths pay, every way is gone and the one nearest to the float model is kept.
    """
    check_overrides(prepared, recipe)
    if recipe.has_goal:
        raise RecipeError("max_drop and agreement are goals of `quantize`: give widths here")
    jittered_logits(prepared)  # for the report: while there is little else in memory
    footprint(prepared)
    recipe = with_weight_widths(prepared, recipe)
    results = []
    for scaled, given in scalings(prepared, recipe):  # s_w,c; a joint search brings the b_c it was made under
        lattice = rounded(prepared, scaled)  # weights to integers
        give_back()
        with sparing():
            model = build_model(prepared, Assembly(lattice))  # f_q
        for assembly in assemblies(prepared, lattice):  # by what a good k_c is: squared error, replay, both
            for allocation in given or allocations(prepared, assembly, model):  # scores, then b_c
                plan = tune_states(prepared, assembly, model, allocation.bits)  # k_c: s_mem,c = s_c 2^k_c
                results.append(Result(assembly, model, allocation.noted(plan), allocation.trials))
    chosen = distilled(prepared, nearest_to_float(prepared, results))
    del results
    warn_if_all_protected(chosen.assembly)
    with sparing(), frozen(prepared, chosen.model, chosen.plan):
        report = make_report(prepared, chosen.assembly, chosen.model, chosen.trials)  # evaluates f_q
    chosen.model.report = report
    return chosen.model


def scalings(prepared: Prepared, recipe: Recipe) -> Iterator[tuple[Lattice, list[Allocation]]]:
    """Scales of the weights: their own; or, for transformers and FlowQ, those chosen together with the
    states' under the bits of every channel, which are allocated first, on nearest weights."""
    own = Lattice.of(prepared.folded, prepared.seen, recipe)
    wanted = prepared.folded.discovery.transformer if recipe.joint is None else recipe.joint
    wanted = wanted or recipe.coupling == "flowq"
    if not wanted or recipe.weights is None or recipe.coupling not in JOINT:
        yield own, []
        return
    assembly = Assembly(own)
    for allocation in allocations(prepared, assembly, build_model(prepared, assembly)):
        streams = joint_stream_scales(assembly, allocation.bits)
        yield own.with_scales(joint_scales(assembly, allocation.bits), streams), [allocation]


def allocations(prepared: Prepared, assembly: Assembly, model: QuantizedModel) -> list[Allocation]:
    """b_c of every channel, or b_m for all; more than one where both compete."""
    if is_mixed(assembly):
        return allocate_bits(prepared, assembly, partial(judge, prepared, assembly, model))
    return [Allocation.uniform(assembly)]


def rounded(prepared: Prepared, lattice: Lattice) -> Lattice:
    """Weights to integers for the scales they have, and biases that make up for it."""
    recipe = lattice.basis.recipe
    if recipe.weights is None:
        return lattice
    if recipe.rounding != "nearest":
        lattice = round_weights(prepared, lattice, recipe)
    if recipe.corrects == "bias":
        lattice = lattice.with_biases(corrected_biases(prepared, lattice))
    return lattice


def assemblies(prepared: Prepared, lattice: Lattice) -> Iterator[Assembly]:
    """What the states are judged by: one way, or both to choose from."""
    plain, objective = Assembly(lattice), lattice.basis.recipe.objective
    bridged = any(map(plain.bridged, lattice.neurons))
    if not bridged or objective != "replay":
        yield plain
    if bridged and objective != "squared_error":
        yield Assembly(lattice, dict(float_traces(prepared)))


@dataclass(frozen=True)
class Result:
    """One way to quantize the states."""

    assembly: Assembly
    model: QuantizedModel
    plan: Plan
    trials: list[Trial]


def nearest_to_float(prepared: Prepared, results: list[Result]) -> Result:
    """Of several results the one that comes nearest to the float model (allocation/search.py)."""
    if len(results) == 1:
        return results[0]
    tracked = prepared.progress.track(results, len(results), JUDGING)
    return results[preferred([judge(prepared, r.assembly, r.model, r.plan) for r in tracked])]


def distilled(prepared: Prepared, chosen: Result) -> Result:
    """With integers that were moved end to end, where the recipe wants it and the outputs come nearer."""
    found = distil(prepared, chosen.assembly, chosen.plan)
    if found is None:
        return chosen
    assembly, plan = found
    model = build_model(prepared, assembly)
    before = judge(prepared, chosen.assembly, chosen.model, chosen.plan)
    after = judge(prepared, assembly, model, plan)
    nearer = float(after.apart.mean()) < float(before.apart.mean())
    return Result(assembly, model, plan, chosen.trials) if nearer else chosen


def warn_if_all_protected(assembly: Assembly) -> None:
    """A network may have no state that the budget could be spent on."""
    if assembly.recipe.coupling == "none" or any(map(assembly.in_budget, assembly.lattice.neurons)):
        return
    warnings.warn(
        "no state is inside the budget: every neuron is an output's membrane, without a carried state, "
        "overridden, or the first one of a network whose others are; overrides and first_membrane set widths",
        stacklevel=3,
    )

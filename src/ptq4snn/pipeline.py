"""PTQ4SNN, the paper's algorithm: observe, allocate, bridge, freeze.

`prepare` does once what every recipe needs (trace, fold, one float pass); `run` carries out one recipe on it.
"""

from __future__ import annotations

import difflib
import warnings
from fnmatch import fnmatchcase

from ptq4snn.allocation.mixed import allocate_bits
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.lattice import Lattice, build_lattice
from ptq4snn.errors import RecipeError
from ptq4snn.evaluation.report import make_report
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.prepare import Prepared, prepare
from ptq4snn.recipe import Recipe
from ptq4snn.rounding.stage import round_weights

__all__ = ["Prepared", "prepare", "run"]


def run(prepared: Prepared, recipe: Recipe) -> QuantizedModel:
    """Quantize a prepared model by one recipe."""
    check_overrides(prepared, recipe)
    lattice = settle_lattice(prepared, recipe)  # weights to integers
    assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    model = QuantizedModel(prepared.model, assembly.plan(assembly.uniform_bits()), assembly.integers())
    trials: list[Trial] = []
    if mixes_precision(assembly):  # bits by firing rate and sensitivity; the bridge follows them
        bits, best, trials = allocate_bits(prepared, assembly, model)
        model.use(assembly.plan(bits, best.beta, best.percentile))
    warn_if_all_protected(assembly)
    model.report = make_report(prepared, assembly, model, trials)
    return model


def check_overrides(prepared: Prepared, recipe: Recipe) -> None:
    """An override that fits no module is a misspelling."""
    names = [*prepared.folded.discovery.neurons, *prepared.folded.discovery.projections]
    for pattern in recipe.overrides:
        if not any(fnmatchcase(n, pattern) for n in names):
            near = difflib.get_close_matches(pattern, names, 1, 0.3)
            hint = f"did you mean {near[0]!r}?" if near else "`ptq4snn inspect` lists the names"
            raise RecipeError(
                f"the override {pattern!r} fits no neuron and no projection of the model: {hint}"
            )


def warn_if_all_protected(assembly: Assembly) -> None:
    """Small networks may have nothing but a first and a last layer, which keep widths of their own."""
    if assembly.recipe.coupling == "none" or any(map(assembly.in_budget, assembly.lattice.neurons)):
        return
    warnings.warn(
        "no state is inside the budget: every neuron is the first one, a readout, without a carried state, "
        "or overridden; first_membrane, first_bits, last_bits and overrides set their widths",
        stacklevel=3,
    )


def mixes_precision(assembly: Assembly) -> bool:
    """Whether there are channels whose bits can be chosen."""
    recipe = assembly.recipe
    if recipe.allocation != "mpba" or recipe.coupling == "none":
        return False
    return any(map(assembly.in_budget, assembly.lattice.neurons))


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
    if recipe.rounding == "nearest":
        return lattice
    return build_lattice(folded, seen, recipe, scales, round_weights(prepared, lattice, recipe))

"""PTQ4SNN, the paper's algorithm: observe, allocate, bridge, freeze.

`prepare` does once what every recipe needs (trace, fold, one float pass); `run` carries out one recipe on it.
"""

from __future__ import annotations

from ptq4snn.allocation.mixed import allocate_bits
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.joint import joint_scales
from ptq4snn.bridge.lattice import Lattice, build_lattice
from ptq4snn.evaluation.report import make_report
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.prepare import Prepared, prepare
from ptq4snn.recipe import Recipe

__all__ = ["Prepared", "prepare", "run"]


def run(prepared: Prepared, recipe: Recipe) -> QuantizedModel:
    """Quantize a prepared model by one recipe."""
    lattice = settle_lattice(prepared, recipe)  # weights to integers
    assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    model = QuantizedModel(prepared.model, assembly.plan(assembly.uniform_bits()), assembly.integers())
    trials: list[Trial] = []
    if mixes_precision(assembly):  # bits by firing rate and sensitivity; the bridge follows them
        bits, best, trials = allocate_bits(prepared, assembly, model)
        model.use(assembly.plan(bits, best.beta, best.percentile))
    model.report = make_report(prepared, assembly, model, trials)
    return model


def mixes_precision(assembly: Assembly) -> bool:
    """Whether there are channels whose bits can be chosen."""
    recipe = assembly.recipe
    if recipe.allocation != "mpba" or recipe.coupling == "none":
        return False
    return any(map(assembly.in_budget, assembly.lattice.neurons))


def settle_lattice(prepared: Prepared, recipe: Recipe) -> Lattice:
    """Weight scales: least squared error, or jointly with the state's for transformers."""
    lattice = build_lattice(prepared.folded, prepared.seen, recipe)
    joint = prepared.folded.discovery.transformer if recipe.joint is None else recipe.joint
    if not joint or recipe.coupling not in ("bridge", "layerwise") or recipe.weights is None:
        return lattice
    assembly = Assembly(prepared.folded, prepared.seen, lattice, recipe)
    return build_lattice(prepared.folded, prepared.seen, recipe, joint_scales(assembly, recipe))

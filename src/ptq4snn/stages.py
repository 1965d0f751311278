"""The stages of one quantization and about what each costs, for a bar that tells the time left of all.

In float passes over the calibration samples, as benchmarks/ptq_cost.py found them: a bar needs no more than
their order of magnitude. Stages that a recipe does not have cost nothing. Where widths are allocated before
weights are rounded (transformers, by the paper), the bar waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptq4snn.recipe import Recipe
from ptq4snn.words import ITERATED

__all__ = [
    "BUILDING",
    "CHOOSING_WIDTHS",
    "COMPARING",
    "DISTILLING",
    "JUDGING",
    "NOISE",
    "OBSERVING",
    "READING",
    "ROUNDING",
    "SEARCHING",
    "SENSITIVITY",
    "TUNING",
    "expected_stages",
]  # fmt: skip

READING = "reading the model"
OBSERVING = "observing the float model"
NOISE = "measuring the noise floor"
CHOOSING_WIDTHS = "widths of weights"
ROUNDING = "rounding weights"
BUILDING = "building the program"
SENSITIVITY = "measuring sensitivity"
SEARCHING = "searching (beta, P)"
TUNING = "tuning states"
JUDGING = "choosing by outputs"
DISTILLING = "distilling"
COMPARING = "comparing with float"

A_STEP_OF_RECONSTRUCTION = 0.1
A_STEP_OF_DISTILLATION = 0.13


def expected_stages(recipe: Recipe) -> Mapping[str, float]:
    """Each stage of the recipe with its float passes, in their order."""
    scored = recipe.allocation == "mpba"
    costs = {
        READING: 0.5,
        OBSERVING: 1.0,
        NOISE: 0.4,
        CHOOSING_WIDTHS: 1.5 * recipe.mixes_weights,
        ROUNDING: _rounding(recipe),
        BUILDING: 0.4,
        SENSITIVITY: 2.5 * scored,
        SEARCHING: 2.0 * scored,
        TUNING: 1.2 * (recipe.objective != "squared_error"),
        JUDGING: 0.5 * (recipe.objective == "auto"),
        DISTILLING: A_STEP_OF_DISTILLATION * recipe.distillation,
        COMPARING: 1.3,
    }
    return {name: cost for name, cost in costs.items() if cost}


def _rounding(recipe: Recipe) -> float:
    if recipe.weights is None or recipe.rounding == "nearest":
        return 0.0
    return A_STEP_OF_RECONSTRUCTION * recipe.iterations if recipe.rounding in ITERATED else 3.0

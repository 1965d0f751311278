"""Recipes in words joined by "+", small or capital letters alike, later words win:

bits      w4m4: 4-bit weights and a 4-bit state budget; w4m32 keeps the states, w32m4 the weights;
          w2.5m3.5 are averages, of mixed widths
presets   paper, best-fast, fast, default, best
choices   any value of a field of choices: gptq, layerwise, uniform, replay, dither
options   sequential, bias, threshold, zero-point, 3-bit, separate, competing, mixed-only, moments, fisher,
          distil, one-width, mixed-widths, whole-levels
goals     agreement-97, max-drop-0.5: the smallest model that keeps it; bits are found then
"""

from __future__ import annotations

import re
from typing import Any

from ptq4snn.errors import RecipeError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.overrides import COUPLINGS

__all__ = [
    "ALLOCATIONS", "CHOICES", "CORRECTIONS", "ITERATED", "LEAKS", "OBJECTIVES", "OPTIONS", "PRESETS",
    "RECONSTRUCTIONS", "ROUNDINGS", "STATE_ROUNDINGS", "WEIGHT_ALLOCATIONS", "WEIGHT_LEVELS", "WEIGHT_SCALES",
    "WIDTHS", "ZERO_POINTS", "read_words",
]  # fmt: skip

ALLOCATIONS = ("fit", "uniform", "mpba", "benefit")
OBJECTIVES = ("squared_error", "replay", "auto")
ROUNDINGS = ("nearest", "gptq", "sbc", "adaround", "brecq")
ITERATED = ("adaround", "brecq")  # step by step, as many as the recipe says
STATE_ROUNDINGS = ("even", "dither")
CORRECTIONS = ("fit", "none", "bias", "threshold")
ZERO_POINTS = ("none", "channel")
WEIGHT_SCALES = ("fit", "error", "moments")
WEIGHT_LEVELS = ("fit", "whole")
WEIGHT_ALLOCATIONS = ("fit", "uniform", "mixed")
RECONSTRUCTIONS = ("potential", "current", "output")
LEAKS = ("exact", "power", "12-bit")
WIDTHS = (2, 3, 4, 8)
CHOICES = {  # words of a recipe; no two fields share one, but for "none", which is a coupling
    "rounding": ROUNDINGS,
    "coupling": COUPLINGS,
    "allocation": ALLOCATIONS,
    "objective": OBJECTIVES,
    "state_rounding": STATE_ROUNDINGS,
    "reconstruction": RECONSTRUCTIONS,
}
PAPER: dict[str, Any] = {
    "rounding": "brecq", "coupling": "bridge", "allocation": "mpba", "objective": "squared_error",
    "state_rounding": "even", "sequential": False, "correction": "none", "zero_point": "none",
    "widths": (2, 4, 8), "uniform_competes": False, "joint": None, "stream": "shift", "lambda_mem": 1.0,
    "weight_scales": "error", "beta": None, "percentile": None, "sensitivity_batches": None,
    "reconstruction": "potential", "fisher": False, "distillation": 0, "weight_allocation": "uniform",
    "weight_levels": "whole",
}  # fmt: skip
# what won on the trained checkpoints (docs/results.md), in seconds to a minute
BEST_FAST: dict[str, Any] = {
    "rounding": "sbc", "coupling": "bridge", "allocation": "fit", "objective": "auto",
    "state_rounding": "even", "sequential": True, "correction": "fit", "zero_point": "channel",
    "joint": False, "weight_scales": "fit", "sensitivity_batches": "auto", "uniform_competes": True,
    "distillation": 0, "weight_allocation": "fit", "weight_levels": "fit",
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {"rounding": "nearest"},
    "default": {"rounding": "sbc"},
    "best": {"rounding": "brecq"},
    "best-fast": BEST_FAST,
    "paper": PAPER,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "sequential": {"sequential": True},
    "bias": {"correction": "bias"},
    "threshold": {"correction": "threshold"},
    "zero-point": {"zero_point": "channel"},
    "3-bit": {"widths": WIDTHS},
    "separate": {"joint": False},
    "competing": {"uniform_competes": True},
    "mixed-only": {"uniform_competes": False},
    "moments": {"weight_scales": "moments"},
    "one-width": {"weight_allocation": "uniform"},
    "mixed-widths": {"weight_allocation": "mixed"},
    "whole-levels": {"weight_levels": "whole"},
    "fisher": {"fisher": True},
    "distil": {"distillation": 400},
}
BITS = re.compile(r"w(32|[2-8](?:\.\d+)?)m(32|[2-8](?:\.\d+)?)")
GOAL = re.compile(r"(agreement|max-drop)-(\d+(?:\.\d+)?)")
FLOAT_BITS = 32


def read_words(spec: str) -> dict[str, Any]:
    """The fields that a recipe's words set."""
    settings: dict[str, Any] = {}
    for word in spec.split("+"):
        found = meaning(word.lower())
        if "membrane" in found and settings.get("membrane") == FLOAT_BITS:
            settings = {k: v for k, v in settings.items() if (k, v) != ("coupling", "none")}  # m32's
        settings |= found
    return settings


def meaning(word: str) -> dict[str, Any]:
    """The settings that one word of a recipe stands for."""
    bits = BITS.fullmatch(word)
    if bits is not None:
        weights, membrane = (float(b) if "." in b else int(b) for b in bits.groups())
        states = {"coupling": "none"} if membrane == FLOAT_BITS else {}
        return {"weights": weights, "membrane": membrane, **states}
    goal = GOAL.fullmatch(word)
    if goal is not None:
        return {goal[1].replace("-", "_"): float(goal[2])}
    named = PRESETS | OPTIONS
    if word in named:
        return named[word]
    for name, values in CHOICES.items():
        if word in values:
            return {name: word}
    known = [*named, *(v for values in CHOICES.values() for v in values)]
    raise RecipeError(
        f"{short(word)!r} is not a recipe: give bits such as w4m4 (w2 to w8 or w32, m2 to m8 or m32), "
        f"a .toml file, or words joined by +; {hint(word, known)}"
    )

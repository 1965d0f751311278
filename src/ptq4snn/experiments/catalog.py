"""The paper's tables and figures as experiments, run on whatever model and data are given.

Every recipe starts from the preset "paper", so that better defaults of this library do not enter. The W4/M4
baselines are the baseline's weights unchanged with their own scales reused for the states. This module does
not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.methods import FLOAT, Method
from ptq4snn.hints import hint
from ptq4snn.recipe import Recipe

__all__ = ["EXPERIMENTS", "Experiment", "find"]

Kind = Literal["methods", "states", "sweep", "figure"]  # how it is shown
BETAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PERCENTILES = (97.0, 98.0, 99.0)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper. A figure has no methods: its data is computed from the model."""

    name: str
    title: str
    part: str  # of the paper
    kind: Kind = "methods"
    methods: tuple[Method, ...] = ()
    baseline: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of every recipe
    steps: int = 4  # T of the paper


def recipes(**specs: str) -> tuple[Method, ...]:
    """Methods by label, the float model first."""
    return tuple(
        Method.parse(f"{label}={spec}") for label, spec in {"Full precision": FLOAT, **specs}.items()
    )


MAIN = recipes(
    **{
        "BRECQ W4/M32": "paper+brecq+w4m32",
        "BRECQ W4/M4 (Reuse)": "paper+brecq+reuse+uniform+w4m4",
        "GPTQ W4/M32": "paper+gptq+w4m32",
        "GPTQ W4/M4 (Reuse)": "paper+gptq+reuse+uniform+w4m4",
        "FlowQ W4/M4": "paper+nearest+flowq+uniform+w4m4",
        "PTQ4SNN W4/M4": "paper+w4m4",
    }
)
STATES = recipes(**{"M32": "paper+w4m32", "Uniform M4": "paper+uniform+w4m4", "MPBA": "paper+w4m4"})
SCALES = recipes(
    **{
        "Reuse": "paper+reuse+uniform+w4m4",
        "Independent observer": "paper+independent+uniform+w4m4",
        "Unified Bridge": "paper+bridge+uniform+w4m4",
    }
)
MIXED = recipes(**{"Without MPBA": "paper+uniform+w4m4", "With MPBA": "paper+w4m4"})


def grid() -> tuple[Method, ...]:
    """A method for each (beta, P) of the paper's sweep."""
    base = Recipe.parse("paper+w4m4")
    points = [(b, p) for p in PERCENTILES for b in BETAS]
    return (
        Method("Full precision", None, FLOAT),
        *(
            Method(f"beta {b:g}, P{p:g}", base.replace(beta=b, percentile=p), f"paper+w4m4 beta {b:g} P{p:g}")
            for b, p in points
        ),
    )


EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment("imagenet", "ImageNet-1K classification", "Table imagenet_main", methods=MAIN),
        Experiment(
            "cifar10-dvs", "CIFAR10-DVS classification, T = 10", "Table dvs_main", methods=MAIN, steps=10
        ),
        Experiment(
            "segmentation", "Pascal VOC2012 segmentation: aAcc, mIoU, mAcc", "Table seg_main", methods=MAIN
        ),
        Experiment(
            "packed-state",
            "resident membrane state: bits, bytes, read/write energy",
            "Table packed_state_cost",
            "states",
            STATES,
        ),
        Experiment(
            "scale-ablation",
            "membrane scales: reuse, observer, bridge; first and last weights 4-bit",
            "Table ablation_scale",
            methods=SCALES,
            changes={"first_bits": 4, "last_bits": 4},
        ),
        Experiment(
            "mpba-ablation",
            "with and without mixed-precision allocation",
            "Table ablation_mpba_component",
            methods=MIXED,
            baseline="Without MPBA",
        ),
        Experiment(
            "sweep", "beta and percentile of the allocation", "Figure mpba_sweep_vgg", "sweep", grid()
        ),
        Experiment(
            "cifar", "CIFAR-10 and CIFAR-100 classification", "Table appendix_classification", methods=MAIN
        ),
        Experiment(
            "membrane-cost",
            "storage against batch size, state traffic against T",
            "Figure membrane_motivation",
            "figure",
        ),
        Experiment(
            "distributions",
            "weights and membrane states of channels",
            "Figure distribution_analysis",
            "figure",
        ),
        Experiment(
            "bridge-analysis",
            "shift exponents k; bridged against observer scales",
            "Figure bridge_analysis",
            "figure",
        ),
        Experiment(
            "allocation", "score ranking, and 2/4/8 bits in every stage", "Figure mpba_diagram", "figure"
        ),
        Experiment(
            "segmentation-examples",
            "images, labels, float and quantized prediction",
            "qualitative examples of segmentation",
            "figure",
        ),
    )
}


def find(name: str) -> Experiment:
    """The experiment of that name; of a misspelt one the nearest is suggested."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    about = hint(name, EXPERIMENTS, "`ptq4snn experiment` lists them")
    raise PTQ4SNNError(f"there is no experiment {name!r}: {about}")

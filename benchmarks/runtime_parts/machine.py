"""What figures are of: the processor, and the instructions that the contenders may use."""

from __future__ import annotations

import os
from typing import Any

import torch

from ptq4snn.experiments.bench import today
from ptq4snn.runtime.measure import processor
from ptq4snn.runtime.native import available

__all__ = ["BASELINES", "VARIABLE", "instructions", "levels", "machine"]

VARIABLE = "PTQ4SNN_CPU_BASELINE"  # of this benchmark: as if the processor had no more than this
BASELINES: dict[str, dict[str, str]] = {  # how torch and its libraries are held to it
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}


def levels() -> list[str]:
    """Kernels of the runtime that may be used, the fastest last."""
    found = ["numpy", *(level for level in available() if level)]
    held = os.environ.get(VARIABLE)
    return found[: found.index(held) + 1] if held in found else found


def instructions() -> str:
    return levels()[-1]


def machine() -> dict[str, Any]:
    """What the figures are of, in words."""
    held = VARIABLE in os.environ
    return {
        "processor": processor(),
        "instructions": instructions(),
        "held": held,  # the processor has more
        "torch": torch.__version__,
        "date": today(),
    }

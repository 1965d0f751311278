"""What figures are of: the processor, and the instructions that the contenders may use."""

from __future__ import annotations

import os
import re
from pathlib import Path
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


def model() -> str:
    """Family and model of the processor where the system tells them: names do not always say which it is."""
    info = Path("/proc/cpuinfo")
    text = info.read_text("utf-8", "replace") if info.exists() else ""
    found = [re.search(rf"^{key}\s*: (\d+)$", text, re.MULTILINE) for key in ("cpu family", "model")]
    return ", ".join(f"{word} {m[1]}" for word, m in zip(("family", "model"), found, strict=True) if m)


def machine() -> dict[str, Any]:
    """What the figures are of, in words."""
    held = VARIABLE in os.environ
    return {
        "processor": processor(),
        "model": model(),
        "instructions": instructions(),
        "held": held,  # the processor has more
        "torch": torch.__version__,
        "date": today(),
    }

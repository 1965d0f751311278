"""What figures are of."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """What the figures are of, in words."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {"processor": names[0] if names else platform.processor(), "torch": torch.__version__}

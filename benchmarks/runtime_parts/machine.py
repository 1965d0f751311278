"""What figures are of."""

from __future__ import annotations

from typing import Any

import torch

from ptq4snn.runtime.measure import processor

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """What the figures are of, in words."""
    return {"processor": processor(), "torch": torch.__version__}

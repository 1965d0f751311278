"""The learning rate: a linear warm-up, then a cosine to zero."""

from __future__ import annotations

import math

__all__ = ["learning_rate"]


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Of step 0 .. total - 1."""
    warm = warmup * total
    if step < warm:
        return peak * (step + 1) / (math.floor(warm) + 1)
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / (total - warm)))

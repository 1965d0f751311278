"""Times of several contenders from one run of `ptq4snn.runtime.measure.interleave`.

Ratios are taken inside a round. Reported are medians over the rounds and the middle half of the ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

__all__ = ["quartiles", "summary"]


def summary(times: Mapping[str, list[float]], batch: int, base: str) -> dict[str, Any]:
    """Milliseconds an image and speed-up over `base`: median, and quartiles of the ratio in a round."""
    out = {}
    for name, t in times.items():
        row: dict[str, Any] = {
            "ms_per_image": 1e3 * statistics.median(t) / batch,
            "ms_least": 1e3 * min(t) / batch,
            "ms_spread": [1e3 * q / batch for q in quartiles(t)],
        }
        if base in times:
            ratios = [b / a for a, b in zip(t, times[base], strict=True)]
            row |= {"speedup": statistics.median(ratios), "speedup_spread": quartiles(ratios)}
        out[name] = row
    return out


def quartiles(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [values[0], values[0]]
    q = statistics.quantiles(values, n=4, method="inclusive")
    return [q[0], q[2]]

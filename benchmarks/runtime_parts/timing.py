"""Times of several contenders from one interleaved run.

Others may use the machine, and clocks change: contenders take turns, round after round, and ratios are taken
inside a round. Reported are medians over the rounds and the middle half of the ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

LEAST_SECONDS = 0.05  # of one measurement: fast contenders are repeated


def once(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds a call."""
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def interleave(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of every contender in every round; one warm-up before."""
    repeats = {}
    for name, work in contenders.items():
        work()
        repeats[name] = max(1, min(200, round(LEAST_SECONDS / max(once(work), 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for i in range(rounds):
        for name in order[i % len(order) :] + order[: i % len(order)]:  # nobody always follows the same one
            times[name].append(once(contenders[name], repeats[name]))
    return times


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

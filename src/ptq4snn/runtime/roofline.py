"""How near the kernels come to what one thread of this machine can do at most.

    event path    a spike adds a row of weights:   synaptic operations a second / byte additions a second
    dense path    every input is multiplied:       multiply-adds a second / 8-bit multiply-adds a second

The peaks are measured, in about a second: by the native kernels where they are there, else with NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptq4snn.runtime.statistics import OperationStatistics

__all__ = ["Peaks", "Rate", "measure_peaks", "rate_of"]

ADDS, MACS, MEMORY = 0, 1, 2  # kinds of the native measurement
# milliseconds of a burst and how many; the best one counts: short ones fit between other processes' turns
BURSTS = {ADDS: (2, 100), MACS: (2, 100), MEMORY: (30, 6)}


@dataclass(frozen=True)
class Peaks:
    """Operations, or bytes read, a second of one thread."""

    kernels: str  # that measured
    adds: float
    macs: float
    memory: float


@dataclass(frozen=True)
class Rate:
    """What an operation did a second, and its share of the peak that bounds it."""

    operations: float
    share: float


def rate_of(op: OperationStatistics, peaks: Peaks, threads: int = 1) -> Rate | None:
    """None where nothing was counted, or the executor does not tell the path: the peak is then unknown."""
    bounds = {"event": (op.synops, peaks.adds), "dense": (op.macs, peaks.macs)}
    count, peak = bounds.get(op.path, (0, 0.0))
    if not count or not peak or op.milliseconds <= 0:
        return None
    rate = count / (1e-3 * op.milliseconds)
    return Rate(rate, rate / (peak * threads))


def measure_peaks(kernels: str) -> Peaks:
    """`kernels` as `Statistics.kernels` names them."""
    if kernels == "numpy":
        return Peaks("numpy", _numpy_adds(), _numpy_macs(), _numpy_memory())
    from ptq4snn.runtime.native import peak

    def best(kind: int) -> float:
        milliseconds, count = BURSTS[kind]
        return max(peak(kind, milliseconds, kernels) or 0.0 for _ in range(count))

    return Peaks(kernels, best(ADDS), best(MACS), best(MEMORY))


def _numpy_adds() -> float:
    a = np.ones(1 << 14, np.uint8)
    return a.size * _calls_a_second(ADDS, lambda: np.add(a, a, out=a))


def _numpy_macs() -> float:
    """NumPy has no fast product of integers: float32 matrices are what it does best."""
    a = np.ones((256, 256), np.float32)
    out = np.empty_like(a)
    return a.size * a.shape[0] * _calls_a_second(MACS, lambda: np.matmul(a, a, out=out))


def _numpy_memory() -> float:
    a = np.ones(1 << 25, np.uint64)  # 256 MiB: no cache holds it
    return a.nbytes * _calls_a_second(MEMORY, lambda: np.bitwise_or.reduce(a))


def _calls_a_second(kind: int, work: Callable[[], object]) -> float:
    work()
    best = 0.0
    milliseconds, count = BURSTS[kind]
    for _ in range(count):
        calls, spent, began = 0, 0.0, time.perf_counter()
        while spent < 1e-3 * milliseconds:
            work()
            calls += 1
            spent = time.perf_counter() - began
        best = max(best, calls / spent)
    return best

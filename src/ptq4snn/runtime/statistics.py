"""What an executor tells of its last call: where the time went, and what lies in memory."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OperationStatistics", "Statistics"]


@dataclass(frozen=True)
class OperationStatistics:
    """One operation, all samples and steps of a call together.

    density: share of the inputs that are not 0, of a projection or a matmul; None elsewhere, or not counted.
    path: "event" (a row of weights is added for every spike), "dense", or "" where there is no choice.
    synops: additions that the non-zero inputs cause: for each, the taps that see it times output channels.
    macs: the same if every input were non-zero.
    """

    name: str
    kind: str
    milliseconds: float
    density: float | None = None
    path: str = ""
    synops: int = 0
    macs: int = 0


@dataclass(frozen=True)
class Statistics:
    """weights_bytes: parameters as they lie in memory. state_bytes: what a session keeps of one sample.
    arena_bytes: values and scratch of the last call, all threads."""

    kernels: str  # "numpy", or the instruction set of the native ones
    operations: tuple[OperationStatistics, ...]
    samples: int
    steps: int
    weights_bytes: int
    state_bytes: int
    arena_bytes: int

"""What the NumPy kernels of a run share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.numerics.limits import EXACT_FLOAT32

__all__ = ["Array", "Kernel", "Run", "carrier"]


Array: TypeAlias = NDArray[Any]  # [T, B, positions, channels], T = 1 where a value has no time


@dataclass
class Run:
    """One call on one tile of the batch."""

    samples: NDArray[np.float32]  # [T or 1, B, N]
    steps: int  # of this call
    first: int  # steps before it
    values: dict[int, Array]
    membranes: dict[int, Array]  # Vq of a neuron, or what is delayed, [B, positions, channels]
    sums: dict[int, Array]  # over time [B, positions, channels]
    at: int | None = None  # the step of the loop, while one runs
    cancels: int = 0  # of the executor when the call began

    @property
    def here(self) -> range:
        """The steps that an operation runs now."""
        return range(self.steps) if self.at is None else range(self.at, self.at + 1)

    @property
    def total(self) -> int:
        """Steps since the sequence began."""
        return self.first + self.steps


Kernel: TypeAlias = Callable[[Run, Sequence[Array]], Array]


def carrier(largest: int) -> Any:
    """The float that holds every whole number up to `largest`; bounds.py proves that float64 does."""
    return np.float32 if largest < EXACT_FLOAT32 else np.float64

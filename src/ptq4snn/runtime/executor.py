"""What an engine must do. NumPy (`reference.py`) and the native kernels (`native/`) give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptq4snn.runtime.state import State
from ptq4snn.runtime.statistics import Statistics

__all__ = ["Executor"]


class Executor(Protocol):
    kernels: str  # "numpy", or the instruction set
    profile: bool  # time the operations of the next calls, for `statistics`

    def statistics(self) -> Statistics:
        """Of the last call."""
        ...

    def cancel(self) -> None:
        """From another thread: calls that run now raise `Cancelled`; what they write is half written."""
        ...

    def execute(
        self,
        x: NDArray[np.float32],
        steps: int,
        state: State | None,
        keep: Sequence[int],
        threads: int,
        into: State | None = None,
    ) -> dict[int, NDArray[np.int64]]:
        """Run `steps` time steps.

        x: samples [T, B, N] of N numbers each, T = steps, or T = 1 for a still image.
        state: None: start from rest and keep nothing. Else go on from there.
        into: memory for as many samples, in which the state is left; `state` stays then. None: it is updated
        in place.
        keep: numbers of the values wanted. Returned as [T, B, positions, channels], without time as
        [B, positions, channels].
        A TimeSum sums over all steps since the state began (state.steps, after this call), else over `steps`;
        so do the conversions of projections and neurons that read such a sum (`over_time`) to the unit of
        calibration. Only a projection of the role "output" is not converted here: `decode.py` does that.
        """
        ...

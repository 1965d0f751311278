"""The native executor: the whole program in C++, bit for bit like `reference.py`.

The library is optional. `available()` names the instruction set levels that can be used here, none where it
was not built; the environment variable PTQ4SNN_KERNELS names one that must be used, or "numpy".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.network.program import Neuron
from ptq4snn.runtime.native.binding import Buffers, Call, Engine, Library, library
from ptq4snn.runtime.native.layout import COUNTERS, PATHS
from ptq4snn.runtime.native.planner import plan_model
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import State
from ptq4snn.runtime.statistics import OperationStatistics, Statistics

__all__ = ["NativeExecutor", "available", "peak"]

VARIABLE = "PTQ4SNN_KERNELS"
MOVES = ("keep", "take", "put")  # of values in and out
PROJECTIONS = ("project", "project_neuron", "project_rows")


def available() -> tuple[str, ...]:
    """Levels that this machine can run, the best last."""
    lib = library()
    return () if lib is None else lib.levels


def peak(kind: int, milliseconds: int = 50, isa: str | None = None) -> float | None:
    """Operations a second of one thread: 0 additions of bytes, 1 multiply-adds, 2 bytes read from memory,
    3 from the second cache. None without native kernels."""
    lib = library()
    return None if lib is None else float(lib.call.ptq_peak(_level(lib, isa).encode(), kind, milliseconds))


def _level(lib: Library, isa: str | None) -> str:
    level = isa or os.environ.get(VARIABLE) or lib.levels[-1]
    if level not in lib.levels:
        raise PTQ4SNNError(
            f"there are no native kernels {level!r} here: choose one of {', '.join(lib.levels)}"
        )
    return level


class NativeExecutor:
    """`executor.Executor`. Only the values `keep` can be asked for: at first the outputs and all spikes."""

    def __init__(
        self,
        model: Model,
        isa: str | None = None,
        keep: Iterable[int] | None = None,
        expanded: bool = False,
    ) -> None:
        lib = library()
        if lib is None:
            raise PTQ4SNNError(
                'the native kernels are not built: install with a C++ compiler, or use "numpy"'
            )
        program = model.program
        if keep is None:
            spikes = (op.output for op in program.operations if isinstance(op, Neuron))
            keep = {*spikes, *(out.value for out in program.outputs)}
        self.kernels = _level(lib, isa)
        self.profile, self.path = False, "auto"
        self._values, self._program_steps = program.values, program.steps
        plan = plan_model(model, keep)
        self._operations, self._states = plan.operations, plan.states
        self._slots = {v: slot for slot, v in enumerate(plan.kept)}  # of the kept values
        self._model = model.bare() if plan.goes_round else None  # which needs states also from rest
        self._engine = Engine(lib, plan.block, self.kernels, expanded)
        self._seen = (0, 0)  # samples and steps of the last call

    def execute(
        self,
        x: NDArray[np.float32],
        steps: int,
        state: State | None,
        keep: Sequence[int],
        threads: int,
        into: State | None = None,
    ) -> dict[int, NDArray[np.int64]]:
        if lost := [v for v in keep if v not in self._slots]:
            raise DataError(f"the value {min(lost)} is not kept: name it in `keep` when the executor is made")
        batch = x.shape[1]
        if state is None and self._model is not None:
            state = State.new(self._model, batch)
        into = state if into is None else into
        out = {v: self._blank(v, steps, batch) for v in keep}
        states = None if state is None or into is None else (self._buffers(state), self._buffers(into))
        first = 0 if state is None else state.steps
        x = np.ascontiguousarray(x, dtype=np.float32)
        call = Call(steps, first, threads, PATHS.index(self.path), self.profile)
        self._engine.run(call, x, states, Buffers.kept(out, self._slots))
        if into is not None:
            into.steps = first + steps
        self._seen = (batch, steps)
        return out

    def cancel(self) -> None:
        self._engine.cancel()

    def _blank(self, v: int, steps: int, batch: int) -> NDArray[np.int64]:
        value = self._values[v]
        shape = (batch, value.positions, value.channels)
        return np.empty((steps, *shape) if value.time else shape, dtype=np.int64)

    def _buffers(self, state: State) -> Buffers:
        """The arrays of a state: those of its last call, unless somebody gave it others."""
        known = state.buffers
        if isinstance(known, Buffers) and known.are_of(state.rows, state.sums):
            return known
        arrays = [self._state(state, v) for v in self._states]
        found = Buffers.states(arrays, [*state.rows.values(), *state.sums.values()])
        state.buffers = found
        return found

    def _state(self, state: State, v: int) -> NDArray[np.uint8] | NDArray[np.int64]:
        """The array that is written in place."""
        part: dict[int, NDArray[np.uint8]] | dict[int, NDArray[np.int64]] = (
            state.rows if v in state.rows else state.sums
        )
        if not part[v].flags.c_contiguous or not part[v].flags.writeable:
            part[v] = part[v].copy()  # type: ignore[assignment]
        return part[v]

    def statistics(self) -> Statistics:
        """Of the last call; times and counts only where `profile` was set before it."""
        rows = self._engine.counters(len(self._operations))
        operations = [
            _statistics(name, kind, dict(zip(COUNTERS, row.tolist(), strict=True)))
            for (name, kind), row in zip(self._operations, rows, strict=True)
            if kind not in MOVES
        ]
        weights, arena, state = (self._engine.size(what) for what in range(3))
        return Statistics(self.kernels, tuple(operations), *self._seen, weights, state, arena)


def _statistics(name: str, kind: str, c: dict[str, int]) -> OperationStatistics:
    density = c["nonzero"] / c["inputs"] if c["inputs"] else None
    path = ""
    if kind in PROJECTIONS and c["event_calls"] + c["dense_calls"]:
        path = "event" if c["event_calls"] >= c["dense_calls"] else "dense"
    return OperationStatistics(name, kind, 1e-6 * c["nanoseconds"], density, path, c["synops"], c["macs"])

"""The executor in NumPy: exact, portable, and what the native kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import Cancelled
from ptq4snn.network.program import Delay, MatMul, Neuron, Operation, Program, Project
from ptq4snn.runtime.numpy_ops import kernel_of
from ptq4snn.runtime.numpy_run import Array, Run
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import State, pack_rows, rows_of, unpack_rows
from ptq4snn.runtime.statistics import OperationStatistics, Statistics
from ptq4snn.runtime.stepwise import Put, Stepwise, Take, made_by, stepwise

__all__ = ["NumpyExecutor"]

TILE = 2**21  # elements that may live at once before the batch is cut


class NumpyExecutor:
    """`executor.Executor`. Memory follows a tile of the batch; the number of threads is NumPy's own."""

    kernels = "numpy"

    def __init__(self, model: Model, tile: int = TILE) -> None:
        self._laid = stepwise(model, frozenset(range(len(model.program.values))))
        self.model, self.tile, self.profile = self._laid.model, tile, False
        self._kernels = [kernel_of(self.model, op) for op in self.model.program.operations]
        self._rows = {op.output: rows_of(model, op) for op in _stateful(model.program)}
        self._last = _last_reads(self._laid)
        self._times = np.zeros(len(self._kernels))
        self._counts = np.zeros((len(self._kernels), 2))  # non-zero inputs, inputs
        self._seen = (0, 0, 0)  # samples, steps, bytes of the last call
        self._cancels = 0  # a call ends where it changes

    def execute(
        self,
        x: NDArray[np.float32],
        steps: int,
        state: State | None,
        keep: Sequence[int],
        threads: int,
        into: State | None = None,
    ) -> dict[int, NDArray[np.int64]]:
        batch, first, cancels = x.shape[1], 0 if state is None else state.steps, self._cancels
        into = state if into is None else into
        self._times[:], self._counts[:] = 0, 0
        peak = _peak(self.model.program, self._last, set(keep), steps)
        size = max(1, min(batch, self.tile // peak))
        self._seen = (batch, steps, 8 * peak * size)
        asked, keep = keep, [self._laid.outside.get(v, v) for v in keep]
        out = {v: self._blank(v, steps, batch) for v in keep}
        for begin in range(0, batch, size):
            tile = slice(begin, min(begin + size, batch))
            run = Run(x[:, tile], steps, first, {}, {}, {}, cancels=cancels)
            if state is not None:
                self._resume(run, state, tile)
            self._run(run, set(keep))
            for v in keep:
                timed = self.model.program.values[v].time
                out[v][..., tile, :, :] = run.values[v] if timed else run.values[v][0]
            if into is not None:
                self._suspend(run, into, tile)
        if into is not None:
            into.steps = first + steps
        return {v: out[number] for v, number in zip(asked, keep, strict=True)}

    def cancel(self) -> None:
        self._cancels += 1

    def _blank(self, v: int, steps: int, batch: int) -> NDArray[np.int64]:
        value = self.model.program.values[v]
        shape = (batch, value.positions, value.channels)
        return np.empty((steps, *shape) if value.time else shape, dtype=np.int64)

    def _run(self, run: Run, keep: set[int]) -> None:
        at = 0
        for loop in self._laid.loops:
            self._operations(run, keep, range(at, loop.start))
            self._go_round(run, loop)
            for v in {v for i in loop for v in self._last[i]} - keep:
                del run.values[v]
            at = loop.stop
        self._operations(run, keep, range(at, len(self._kernels)))

    def _operations(self, run: Run, keep: set[int], which: range) -> None:
        for i in which:
            self._operation(run, i)
            for v in self._last[i]:
                if v not in keep:
                    del run.values[v]

    def _operation(self, run: Run, i: int) -> None:
        if run.cancels != self._cancels:
            raise Cancelled("the call was cancelled")
        op = self.model.program.operations[i]
        inputs = [] if isinstance(op, Delay) else [run.values[v] for v in op.inputs]
        begin = perf_counter()
        run.values[op.output] = self._kernels[i](run, inputs)
        if self.profile:
            self._measure(i, op, inputs, perf_counter() - begin)

    def _go_round(self, run: Run, loop: range) -> None:
        """The operations of the loop, one step after the other."""
        inside = self.model.program.operations[loop.start : loop.stop]
        delays = [op for op in inside if isinstance(op, Delay)]
        for t in range(run.steps):
            run.at = t
            for i in loop:
                self._operation(run, i)
            for op in delays:
                run.membranes[op.output] = run.values[op.inputs[0]][0]
        run.at = None

    def _resume(self, run: Run, state: State, tile: slice) -> None:
        for v, rows in self._rows.items():
            value = self.model.program.values[v]
            v_q = unpack_rows(rows, state.rows[v][tile])
            run.membranes[v] = v_q.reshape(len(v_q), value.positions, value.channels)
        for v, total in state.sums.items():
            run.sums[v] = total[tile]

    def _suspend(self, run: Run, state: State, tile: slice) -> None:
        for v, rows in self._rows.items():
            state.rows[v][tile] = pack_rows(rows, run.membranes[v])
        for v in state.sums:
            state.sums[v][tile] = run.sums[v]

    def _measure(self, i: int, op: Operation, inputs: Sequence[Array], seconds: float) -> None:
        self._times[i] += seconds
        if isinstance(op, (Project, MatMul)):
            self._counts[i] += np.count_nonzero(inputs[0]), inputs[0].size

    def statistics(self) -> Statistics:
        """Of the last call; times and densities only where `profile` was set before it."""
        samples, steps, arena = self._seen
        operations = []
        for op, seconds, (busy, all_) in zip(
            self.model.program.operations, self._times, self._counts, strict=True
        ):
            if isinstance(op, (Take, Put)):
                continue
            density = float(busy / all_) if all_ else None
            path = "dense" if isinstance(op, (Project, MatMul)) else ""
            operations.append(OperationStatistics(op.name, op.kind, 1e3 * float(seconds), density, path))
        state = sum(r.count * r.size for r in self._rows.values())
        return Statistics(self.kernels, tuple(operations), samples, steps, self._weights(), state, arena)

    def _weights(self) -> int:
        """The parameters as this executor holds them: 4 bytes and more a weight."""
        return sum(4 * p.weight.size + 8 * p.bias.size for p in self.model.projections.values())


def _stateful(program: Program) -> list[Neuron | Delay]:
    operations = program.operations
    return [op for op in operations if isinstance(op, Delay) or (isinstance(op, Neuron) and not op.once)]


def _last_reads(laid: Stepwise) -> list[list[int]]:
    """For each operation, the values that nobody reads after it; what a loop reads lives until its end."""
    program = laid.model.program
    last: dict[int, int] = {}
    until = {i: loop.stop - 1 for loop in laid.loops for i in loop}
    for i, op in enumerate(program.operations):
        for v in (*op.inputs, *made_by(op)):
            last[v] = until.get(i, i)
    out: list[list[int]] = [[] for _ in program.operations]
    for v, i in last.items():
        out[i].append(v)
    return out


def _peak(program: Program, last: list[list[int]], keep: set[int], steps: int) -> int:
    """The most elements of one sample that live at once."""
    live = peak = 0
    size = [v.positions * v.channels * (steps if v.time else 1) for v in program.values]
    for i, op in enumerate(program.operations):
        live += sum(size[v] for v in made_by(op))
        peak = max(peak, live)
        live -= sum(size[v] for v in last[i] if v not in keep)
    return peak

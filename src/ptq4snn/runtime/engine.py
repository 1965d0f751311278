"""A model that runs: whole sequences, or step by step with its state kept packed."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.network.program import Neuron, Program, TimeSum
from ptq4snn.runtime.decode import Decoder, late_heads
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.executor import Executor
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import MAX_STEPS, Rest, State, rows_of, unpack_rows
from ptq4snn.runtime.statistics import Statistics

__all__ = ["Runtime", "is_causal", "load"]

Array = NDArray[Any]
Outputs = Array | tuple[Array, ...]


AFTER_FORK: WeakSet[Runtime] = WeakSet()


def load(
    path: str | Path,
    kernels: str = "auto",
    threads: int = 1,
    limits: Limits | None = None,
    expanded: bool = False,
) -> Runtime:
    """The model of a bundle, ready to run.

    kernels: "auto" (native where they are built, else NumPy), "numpy", "native", or an instruction set of the
    native ones, such as "scalar", "avx2", "avx512bw" or "avx512". All give the same bits.
    limits: what the bundle may ask for in memory and additions, refused above before any of it is taken; None
    for those of `Limits()`.
    expanded: weights of the event path stay in memory as bytes beside the packed ones, together three times
    the memory of 4-bit weights; whether single steps are faster by it depends on the caches, docs/runtime.md.
    """
    return Runtime(load_model_file(path, limits or Limits()), kernels, threads, expanded)


class Runtime:
    """`rt(x)` runs a whole sequence; `rt.step(frame)` one step of a session, whose state it keeps."""

    def __init__(self, model: Model, kernels: str = "auto", threads: int = 1, expanded: bool = False) -> None:
        self._threads = _threads(threads)
        self._executor, self.kernels = _executor(model, kernels, expanded)
        self.model = model if self.kernels == "numpy" else model.bare()
        self._decoders = [Decoder(self.model, out) for out in model.program.outputs]
        self._keep = sorted({out.value for out in model.program.outputs})
        # where the session stands, and a state whose memory the next step may use; replaced as one
        self._session: tuple[State | None, State | None] = (None, None)
        self._spares: list[State] = []  # of a session that has ended: their memory serves the next one
        self._read: list[State] = []  # by steps that run: a signal's handler may step meanwhile
        self._lock = RLock()  # of the session
        AFTER_FORK.add(self)
        self._fixed = _fixed_steps(model)
        self._causal = is_causal(model.program)
        self._rest = Rest(self.model)

    @property
    def threads(self) -> int:
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = _threads(count)

    def __call__(self, x: Any, steps: int | None = None, threads: int | None = None) -> Outputs:
        """The outputs of a batch of whole sequences, each from rest.

        x has the axes of the model's input. A model of still images runs `steps` steps, at first those of its
        calibration; of sequences the time axis says how many.
        """
        samples, steps = self._samples(x), self._steps(x, steps)
        self._check_steps(steps)
        values = self._executor.execute(samples, steps, None, self._keep, self._count(threads))
        return self._decode(values, steps, steps)

    def step(self, frame: Any, threads: int | None = None) -> Outputs:
        """One step: `frame` is the input without its time axis (of a model of still images, the image).

        Outputs without time are those of the whole sequence so far, the others those of this step.
        """
        if not self._causal:
            raise DataError("the model looks at the whole sequence at every step: give it all at once, rt(x)")
        axis = self.model.program.input.time_axis
        x = _array(frame)
        samples = self._samples(x if axis is None or axis > x.ndim else np.expand_dims(x, axis))
        with self._lock:
            before, after = self._to_step(samples.shape[1])
            self._check_steps(1, before.steps)
            self._read.append(before)
            try:
                values = self._executor.execute(
                    samples, 1, before, self._keep, self._count(threads), into=after
                )
                outputs = self._decode(values, 1, after.steps, of_step=True)
                spare = None if after is before else before
                self._session = (after, spare)  # an interrupted step does not come here: it has not been
            finally:
                self._read.pop()
            return outputs

    def _to_step(self, batch: int) -> tuple[State, State]:
        """The state to go on from, and memory for the next one: what raises during a step leaves the session
        alone."""
        before, spare = self._session
        if before is None:
            before = self._rest.state(batch, self._spare(batch, None))
            return before, before
        if before.batch != batch:
            raise DataError(
                f"the session runs {before.batch} samples, but {batch} came: call rt.reset() first"
            )
        self._session = (before, None)  # a signal's handler that steps has its own memory
        return before, self._spare(batch, spare) or before.beside()

    def _spare(self, batch: int, spare: State | None) -> State | None:
        """Memory that may be written: of no state that a step reads."""
        if spare is None and self._spares:
            spare = self._spares.pop()
        free = spare is not None and spare.batch == batch and not any(spare is s for s in self._read)
        return spare if free else None

    def cancel(self) -> None:
        """From another thread: end the calls that run now. They raise `Cancelled`, a step has not been made;
        calls that begin later, and steps that wait for their turn, are not meant."""
        self._executor.cancel()

    def reset(self) -> None:
        """End the session: the next step begins a new sequence."""
        with self._lock:
            self._spares = [state for state in self._session if state is not None] or self._spares
            self._session = (None, None)

    @property
    def state(self) -> State | None:
        """A copy of the session's state; None before its first step."""
        with self._lock:
            state = self._session[0]
            return None if state is None else state.copy()

    def restore(self, state: State) -> None:
        """Go on from a state of this model."""
        state.check(self.model)
        with self._lock:
            self._session, self._spares = (state.copy(), None), []

    def trace(self, x: Any, steps: int | None = None) -> dict[str, dict[str, Array]]:
        """Of every neuron its spikes [T, B, ...] and, where it keeps one, its last state Vq [B, ...], in the
        order of the model's own axes."""
        samples, steps = self._samples(x), self._steps(x, steps)
        self._check_steps(steps)
        neurons = [op for op in self.model.program.operations if isinstance(op, Neuron)]
        state = State.new(self.model, samples.shape[1])
        keep = [op.output for op in neurons]
        values = self._executor.execute(samples, steps, state, keep, self.threads)
        out: dict[str, dict[str, Array]] = {}
        for op in neurons:
            spikes = values[op.output] if not op.once else values[op.output][None]
            out[op.name] = {"spikes": self._own_order(op, spikes)}
            if not op.once:
                v = unpack_rows(rows_of(self.model, op), state.rows[op.output])
                out[op.name]["state"] = self._own_order(op, v)
        return out

    def _own_order(self, op: Neuron, x: Array) -> Array:
        """[..., B, positions, channels] as the model's state [..., B, *shape]."""
        shape = self.model.neurons[op.name].shape
        flat = x.reshape(*x.shape[:-2], -1)
        if op.element is not None:
            own = np.empty_like(flat)
            own[..., op.element.array()] = flat
            flat = own
        return flat.reshape(*flat.shape[:-1], *shape)

    @property
    def profile(self) -> bool:
        """Whether calls are timed operation by operation, for `statistics`."""
        return self._executor.profile

    @profile.setter
    def profile(self, on: bool) -> None:
        self._executor.profile = on

    def statistics(self) -> Statistics:
        """Of the last call."""
        return self._executor.statistics()

    def _samples(self, x: Any) -> NDArray[np.float32]:
        """The input as [T, B, N], T = 1 for a still image."""
        x, want = _array(x), self.model.program.input
        axes = len(want.shape) + (1 if want.time_axis is None else 2)
        if x.ndim != axes:
            raise DataError(f"the input has {x.ndim} axes, not {axes}: {_wanted(self.model.program)}")
        if want.time_axis is None:
            x = (x if want.batch_axis == 0 else np.moveaxis(x, want.batch_axis, 0))[None]
        elif (want.time_axis, want.batch_axis) != (0, 1):
            x = np.moveaxis(x, (want.time_axis, want.batch_axis), (0, 1))
        if x.shape[2:] != want.shape:
            raise DataError(
                f"a sample has the size {list(x.shape[2:])}, the bundle was made for {list(want.shape)}: "
                f"quantize the model with samples of this size"
            )
        if 0 in x.shape:
            raise DataError("the input has no samples or no steps")
        if np.isnan(x).any():
            bad = np.isnan(x).any(axis=(0, *range(2, x.ndim))).argmax()
            raise DataError(f"sample {bad} of the input, counted from 0, holds NaN")
        if x.dtype != np.float32:
            with np.errstate(over="ignore"):
                x = x.astype(np.float32)
        return np.ascontiguousarray(x).reshape(*x.shape[:2], prod(want.shape))

    def _steps(self, x: Any, steps: int | None) -> int:
        axis = self.model.program.input.time_axis
        if axis is None:
            return self.model.program.steps if steps is None else steps
        found = int(np.shape(x)[axis])
        if steps not in (None, found):
            raise DataError(f"steps is {steps}, but the input has {found} steps")
        return found

    def _count(self, threads: int | None) -> int:
        return self.threads if threads is None else _threads(threads)

    def _check_steps(self, steps: int, before: int = 0) -> None:
        """Of a call, after so many steps of a session."""
        if not isinstance(steps, (int, np.integer)) or not 1 <= steps <= MAX_STEPS:
            raise DataError(f"{steps} steps cannot be run at once, but 1 .. {MAX_STEPS}: go step by step")
        if before + steps > self.model.bounds.steps:
            raise DataError(
                f"after {before} steps the sums over time of this model may leave 53 bits: call rt.reset()"
            )
        if self._fixed is not None and before + steps != self.model.program.steps:
            raise DataError(
                f"'{self._fixed}' reads a mean over time and is read by more than the output: this model "
                f"runs {self.model.program.steps} steps, not {before + steps}"
            )

    def _decode(
        self, values: dict[int, NDArray[np.int64]], steps: int, total: int, of_step: bool = False
    ) -> Outputs:
        arrays = []
        for decoder in self._decoders:
            y = decoder(values[decoder.out.value], steps, total)
            axis = decoder.out.given_axes[1]
            arrays.append(y if axis is None or not of_step else y.take(0, axis))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _new_locks() -> None:
    """In a forked process, before anything else runs there: who held them is not there to give them back."""
    for runtime in AFTER_FORK:
        runtime._lock = RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_new_locks)


def _array(x: Any) -> Array:
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as why:
        raise DataError(f"the input cannot be read as an array ({why}): give a NumPy array") from why
    if array.dtype.kind not in "fiub":
        raise DataError(f"the input is of type {array.dtype}: give numbers, float or integer")
    return array


def _wanted(program: Program) -> str:
    size, x = [str(n) for n in program.input.shape], program.input
    places = [(x.batch_axis, "batch")] + ([] if x.time_axis is None else [(x.time_axis, "steps")])
    for axis, name in sorted(places):
        size.insert(axis, name)
    return f"give [{', '.join(size)}]"


def _threads(threads: int) -> int:
    if not isinstance(threads, (int, np.integer)) or isinstance(threads, bool) or not 1 <= threads <= 1024:
        raise DataError(f"threads is {threads!r}: give a number from 1 to 1024")
    return int(threads)


def _executor(model: Model, kernels: str, expanded: bool) -> tuple[Executor, str]:
    """The executor for `kernels`, and its name."""
    if kernels == "numpy":
        return NumpyExecutor(model), "numpy"
    levels, make = _native()
    if kernels == "auto" and not levels:
        return NumpyExecutor(model), "numpy"
    if kernels not in ("auto", "native", *levels):
        known = ", ".join(("auto", "numpy", *levels))
        raise PTQ4SNNError(f"there are no kernels {kernels!r} here: choose one of {known}")
    if not levels:
        raise PTQ4SNNError('the native kernels are not built: install with a C++ compiler, or use "numpy"')
    executor = make(model, isa=None if kernels in ("auto", "native") else kernels, expanded=expanded)
    return executor, executor.kernels


def _native() -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Instruction sets of the native kernels, none where they are not built, and what makes an executor."""
    try:
        from ptq4snn.runtime.native import NativeExecutor, available
    except ImportError:
        return (), lambda model, isa, expanded: None
    return tuple(level for level in available() if level), NativeExecutor


def _fixed_steps(model: Model) -> str | None:
    """A head behind a mean over time that something else reads: at another T it is not whole any more."""
    read = {v for op in model.program.operations for v in op.inputs}
    return next((op.name for op in late_heads(model) if op.output in read), None)


def is_causal(program: Program) -> bool:
    """Whether nothing that has time depends on a sum over all of it."""
    summed: set[int] = set()
    for op in program.operations:
        late = isinstance(op, TimeSum) or any(v in summed for v in op.inputs)
        if late:
            summed.add(op.output)  # and where it has a potential, that has time as well
    return not any(program.values[v].time for v in summed)

"""The integer program of a quantized model: what a bundle runs, operation by operation.

A value is a tensor of integers. Whatever axes it had in the model, a sample of it at one time step is stored
as [positions, channels], channels last; with `time` there is one for every step, without it one for the whole
sequence: a still image and what is computed from it alone, or something summed over the steps.

An operation makes one value (a neuron may make a second one: its potential). It names its inputs by number;
every input was made by an earlier operation, but for a delay's, which is read one step later. Where only
some inputs have `time`, the others are the same at every step. Numbers of the projections and neurons are not
in the program: they are in the bundle's plan and weights, under the module path `name`.

Nothing here needs torch. `program_json.py` has the JSON form, which docs/format.md describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ptq4snn.network.index import Index, Numbers, Window, window_taps

__all__ = [
    "OPERATIONS", "Affine", "Choice", "Clip", "Combine", "Delay", "Gather", "Input", "MatMul", "Multiply",
    "Neuron", "Operation", "Output", "Pool", "PoolAxis", "Program", "Project", "Quantize", "TimeSum", "Value",
]  # fmt: skip

Integers = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """Integers [T, B, positions, channels], or [B, positions, channels] without `time`."""

    positions: int
    channels: int
    time: bool


@dataclass(frozen=True)
class Operation:
    """`output` is the number of the value it makes, `name` the module path or the place in the model."""

    kind: ClassVar[str]
    output: int
    inputs: Integers
    name: str


@dataclass(frozen=True)
class Quantize(Operation):
    """p = clip(rint(x / scale + zero / 2^16), 0, 255) of the model's input, in float64.

    `name` is the first projection whose `input` plan holds scales and zeros, one entry or one for each
    channel. Element e of the value is element index[e] of one sample of the input at one step; -1 stands for
    x = 0.
    """

    kind = "quantize"
    index: Index


@dataclass(frozen=True)
class Project(Operation):
    """y = ((Wq x) << shift) + bias of a convolution of any rank, or, with an empty `size`, of a Linear.

    Weights are [Cout, Cin / groups, *kernel]. Positions are row-major over `window.size`; padding is zeros.
    The plan of `name` holds shift, zeros of the input (they make the bias a map over positions), rescale, and
    over_time (the input is a sum over all steps).
    """

    kind = "project"
    window: Window | None  # None: Linear, every position on its own
    groups: int


@dataclass(frozen=True)
class Neuron(Operation):
    """The canonical neuron `name` run over the steps; the plan holds its integers.

    x is the input times `factor`. Element e of the value is of the neuron's channel channel[e], and is the
    number element[e] in one sample's state as the model sees it (for dither, and to show states); None: the
    number of the storage channel, and e itself. `once`: the neuron runs a single step, behind a sum over
    time. `potential` is the value that receives A of every step, where the model reads it; `carried`: the
    state V[t-1] that the step began with, in units, in A's place.
    """

    kind = "neuron"
    factor: int
    channel: Index | None
    element: Index | None
    once: bool
    potential: int | None
    carried: bool = False


@dataclass(frozen=True)
class Delay(Operation):
    """The input of the step before; 0 at the first one.

    Its input may be made by a later operation: what goes round from step to step goes through a delay.
    """

    kind = "delay"


@dataclass(frozen=True)
class PoolAxis:
    """One axis of positions, `size` long: every output along it joins `kernel` of them, taps [out * kernel],
    with weights [out * kernel]."""

    size: int
    kernel: int
    taps: Integers
    weights: Integers


@dataclass(frozen=True)
class Pool(Operation):
    """Sum or maximum over a window of positions, each channel on its own.

    Either a regular `window` (padding is 0 for a sum and takes no part in a maximum); or, for a sum, `axes`:
    a position has one tap for each combination of one tap of every axis, and its weight is the product of
    theirs; or `taps`, position numbers [P_out * K] with -1 for zero, with weights [P_out * K] for a sum
    (None: all 1).
    """

    kind = "pool"
    how: str  # "sum" | "max"
    window: Window | None
    taps: Integers | None
    weights: Integers | None
    axes: tuple[PoolAxis, ...] | None = None

    def table(self, positions: int) -> tuple[Numbers, Numbers | None]:
        """Taps and weights, one by one: [P_out, K] each; None: all weights are 1."""
        if self.window is not None:
            return window_taps(self.window), None
        if self.axes is None:
            taps, weights = np.asarray(self.taps, dtype=np.int64).reshape(positions, -1), self.weights
            return taps, None if weights is None else np.asarray(weights, dtype=np.int64).reshape(taps.shape)
        taps, by = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64)
        for a in self.axes:
            at, w = (np.asarray(x, dtype=np.int64).reshape(-1, a.kernel) for x in (a.taps, a.weights))
            shape = len(taps) * len(at), taps.shape[1] * a.kernel
            taps = (taps[:, None, :, None] * a.size + at[None, :, None, :]).reshape(shape)
            by = (by[:, None, :, None] * w[None, :, None, :]).reshape(shape)
        return taps, by


@dataclass(frozen=True)
class Gather(Operation):
    """Element e is the sum (or the maximum) of elements index[e * width ... e * width + width - 1] of one
    sample of the inputs, laid end to end; -1 stands for 0. Width 1 moves elements: transposes, joins."""

    kind = "gather"
    how: str  # "sum" | "max"
    width: int
    index: Index


@dataclass(frozen=True)
class Combine(Operation):
    """sum of coefficient * input, plus a constant. An input of one position serves all positions."""

    kind = "combine"
    coefficients: Integers
    constant: int


@dataclass(frozen=True)
class Multiply(Operation):
    """Product of two inputs, element by element; an input of one position serves all positions."""

    kind = "multiply"


@dataclass(frozen=True)
class Affine(Operation):
    """y = sign * x + shift for each channel: the mirror `name` of the plan."""

    kind = "affine"


@dataclass(frozen=True)
class Clip(Operation):
    kind = "clip"
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Choice(Operation):
    """maximum, minimum, or a comparison (0 or 1) of two inputs, or of one input with `constant`."""

    kind = "choice"
    how: str  # "max" | "min" | "gt" | "ge" | "lt" | "le" | "eq" | "ne"
    constant: int | None


@dataclass(frozen=True)
class MatMul(Operation):
    """For each of `groups`: a [rows, inner] times b [inner, columns]. a has positions groups * rows and
    channels inner, b positions groups * inner and channels columns, the result positions groups * rows and
    channels columns."""

    kind = "matmul"
    groups: int


@dataclass(frozen=True)
class TimeSum(Operation):
    """Sum over all time steps."""

    kind = "time_sum"


OPERATIONS: dict[str, type[Operation]] = {
    c.kind: c
    for c in (
        Quantize, Project, Neuron, Pool, Gather, Combine, Multiply, Affine, Clip, Choice, MatMul, TimeSum,
        Delay,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """The model's input as the user gives it: axes of one sample at one step, and where batch and time stand.

    `shape` is without batch and time; `time_axis` None: a still image, shown for `Program.steps` steps.
    """

    shape: Integers
    batch_axis: int
    time_axis: int | None


@dataclass(frozen=True)
class Output:
    """An output of the model as real numbers.

    Integers of `value` are brought to the order `index` and the shape `shape` (one sample, one step); batch
    and time stand at `batch_axis` and `time_axis` of the result (None: it has no time axis; of a value with
    time it is the last step). They are converted to `dtype` and divided or multiplied in turn by `scalings`
    (["div", x], ["mul", x], or ["steps"]: divided by the number of steps), x and each result rounded to
    dtype. Then what they are worth:

    count      nothing else happens: spikes, or numbers made of spikes; with `scales` they are multiplied by
               these along `axis`, in float64, rounded to float32
    current    times the lattice of the projection `name` (2^-shift of it, or its rescale's scales), along
               `axis` of `shape` counted from the end, in float64, rounded to float32
    potential  times the unit of the neuron `name`, plus v_rest, in float64, rounded to float32

    Last `then`: softmax, log_softmax or argmax along an axis of `shape`, counted from the end
    (numerics/finishing.py); argmax gives int64 and leaves that axis out.
    """

    value: int
    kind: str
    name: str | None
    axis: int
    index: Index
    shape: Integers
    batch_axis: int
    time_axis: int | None
    dtype: str  # "float32" | "float64"
    scalings: tuple[tuple[str, float] | tuple[str], ...]
    then: tuple[tuple[str, int], ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def given_type(self) -> str:
        """The type of the numbers that come out."""
        if any(how == "argmax" for how, _ in self.then):
            return "int64"
        return self.dtype if self.kind == "count" and not self.scales else "float32"

    @property
    def given_shape(self) -> Integers:
        """The shape of one sample at one step as it comes out."""
        gone = [axis % len(self.shape) for how, axis in self.then if how == "argmax"]
        return tuple(n for d, n in enumerate(self.shape) if d not in gone)

    @property
    def placed(self) -> tuple[tuple[str, int], ...]:
        """`then` with its axes counted among all, batch and time with them."""
        taken = (self.batch_axis, self.time_axis)
        rank = len(self.shape) + len(taken) - taken.count(None)
        kept = [d for d in range(rank) if d not in taken]
        return tuple((how, kept[axis] - rank) for how, axis in self.then)

    @property
    def given_axes(self) -> tuple[int, int | None]:
        """Where batch and time are in what comes out."""
        rank = len(self.shape) + 1 + (self.time_axis is not None)
        gone = [axis % rank for how, axis in self.placed if how == "argmax"]
        time = None if self.time_axis is None else self.time_axis - sum(g < self.time_axis for g in gone)
        return self.batch_axis - sum(g < self.batch_axis for g in gone), time


@dataclass(frozen=True)
class Program:
    """`steps` is T at calibration."""

    steps: int
    input: Input
    values: tuple[Value, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]

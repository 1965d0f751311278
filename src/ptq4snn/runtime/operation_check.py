"""What each kind of operation asks of its values and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ptq4snn.network import program as ops
from ptq4snn.numerics.dither import PHASE_BITS
from ptq4snn.numerics.limits import INT32
from ptq4snn.runtime.parameters import Mirror, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.require import (
    MAX_INPUTS,
    MAX_NUMBER,
    MAX_TAPS,
    Refused,
    check_index,
    check_window,
    elements,
    need,
    whole,
    wholes,
)

__all__ = ["RULES", "Numbers", "Place"]

COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")


@dataclass(frozen=True)
class Numbers:
    projections: Mapping[str, ProjectionNumbers]
    neurons: Mapping[str, NeuronNumbers]
    mirrors: Mapping[str, Mirror]


@dataclass(frozen=True)
class Place:
    """An operation with its values."""

    program: ops.Program
    numbers: Numbers
    inputs: tuple[ops.Value, ...]
    output: ops.Value


def _arity(p: Place, low: int, high: int) -> None:
    need(low <= len(p.inputs) <= high, f"it reads {len(p.inputs)} values")


def _timed(p: Place) -> None:
    """The value has time where an input has."""
    timed = any(v.time for v in p.inputs)
    need(p.output.time == timed, "its value has time and no input has, or the other way round")


def _quantize(op: ops.Quantize, p: Place) -> None:
    _arity(p, 0, 0)
    numbers = p.numbers.projections.get(op.name)
    if numbers is None or numbers.input is None:
        raise Refused("the plan has no input grid for it")
    grid = numbers.input
    need(len(grid.scales) == len(grid.zeros) == len(grid.inside), "its scales and zeros differ in number")
    need(
        len(grid.scales) in (1, p.output.channels),
        f"{len(grid.scales)} scales for {p.output.channels} channels",
    )
    need(p.output.time == (p.program.input.time_axis is not None), "its time is not that of the input")
    check_index(op.index, elements(p.output), prod(p.program.input.shape), True, "its index")


def _project(op: ops.Project, p: Place) -> None:
    _arity(p, 1, 1)
    _timed(p)
    numbers = p.numbers.projections.get(op.name)
    if numbers is None:
        raise Refused("the plan has no such projection")
    x, y, shape = p.inputs[0], p.output, numbers.weight.shape
    groups = whole(op.groups, 1, y.channels, "groups")
    kernel: tuple[int, ...] = ()
    if op.window is not None:
        check_window(op.window, x.positions, y.positions)
        kernel = op.window.kernel
    else:
        need(x.positions == y.positions, "a Linear changes the number of positions")
    need(y.channels % groups == 0 and x.channels % groups == 0, "channels do not divide into its groups")
    wanted = (y.channels, x.channels // groups, *kernel)
    need(shape == wanted, f"its weight has the shape {list(shape)}, not {list(wanted)}")
    vectors = [numbers.unit, *([numbers.bias] if numbers.bias.ndim == 1 else [])]
    if numbers.bias.ndim == 2:
        need(numbers.bias.shape == (y.positions, y.channels), "it has biases of other positions")
        need(not numbers.over_time, "it has biases of positions behind a mean over time")
    if numbers.rescale is not None:
        vectors += [numbers.rescale.multipliers, numbers.rescale.shifts, numbers.rescale.scales]
    need(all(len(v) == y.channels for v in vectors), f"its vectors have not {y.channels} channels")
    if numbers.input is not None:
        need(len(numbers.input.inside) in (1, x.channels), f"its zeros have not {x.channels} channels")


def _neuron(op: ops.Neuron, p: Place) -> None:
    _arity(p, 1, 1)
    numbers = p.numbers.neurons.get(op.name)
    if numbers is None:
        raise Refused("the plan has no such neuron")
    x, y = p.inputs[0], p.output
    need(
        (x.positions, x.channels) == (y.positions, y.channels), "its spikes have another size than its input"
    )
    need(isinstance(op.once, bool), "once is neither true nor false")
    need(isinstance(op.carried, bool), "carried is neither true nor false")
    if op.carried:
        need(op.potential is not None and not op.once, "it hands on a state that nobody reads")
        need(len(numbers.lift_m) == len(numbers.bits), "the plan says nothing of the state that it hands on")
    need(y.time == (not op.once), "it runs once and has time, or the other way round")
    need(not (op.once and x.time), "it runs once, but its input has time")
    whole(op.factor, -MAX_NUMBER, MAX_NUMBER, "the factor")
    if op.potential is not None:
        need(p.program.values[op.potential] == y, "its potential has another size than its spikes")
    channels = len(numbers.bits)
    if op.channel is None:
        need(y.channels == channels, f"it has {channels} channels, its input {y.channels}")
    else:
        check_index(op.channel, elements(y), channels, False, "its channel index")
    need(
        prod(numbers.shape) == elements(y), f"its state has the shape {list(numbers.shape)}, not its input's"
    )
    if op.element is not None:
        check_index(op.element, elements(y), elements(y), False, "its element index")
    _levels(numbers, channels)


def _levels(n: NeuronNumbers, channels: int) -> None:
    vectors = (n.zero, n.low, n.high, n.theta, n.rho, n.charge_m, n.charge_n, n.settle_m, n.settle_n, n.unit)
    need(all(len(v) == channels for v in vectors), f"its vectors have not {channels} channels")
    need(bool(((n.low <= 0) & (n.high >= 0)).all()), "its levels do not hold 0, the state at rest")
    need(bool(((n.low >= -INT32) & (n.high < INT32)).all()), "its levels do not fit 32 bits")
    need(n.most == 1 or bool((n.theta > 0).all()), "it divides by a threshold that is not positive")
    if n.rounding == "dither":
        need(bool((n.settle_m == 1).all()), "its states are scaled by more than a shift, which dither cannot")
        need(bool((n.settle_n <= PHASE_BITS).all()), f"dither needs shifts of at most {PHASE_BITS}")


def _pool(op: ops.Pool, p: Place) -> None:
    _arity(p, 1, 1)
    _timed(p)
    x, y = p.inputs[0], p.output
    need(op.how in ("sum", "max"), "it is neither a sum nor a maximum")
    need(x.channels == y.channels, "it changes the number of channels")
    if op.window is not None:
        need(op.taps is None and op.weights is None, "it has a window and taps")
        check_window(op.window, x.positions, y.positions, full=op.how == "max")
        return
    taps = wholes(op.taps, -1, x.positions - 1, "a tap", MAX_TAPS)
    need(len(taps) > 0 and len(taps) % y.positions == 0, "its taps do not divide into its positions")
    if op.weights is not None:
        need(op.how == "sum", "a maximum has no weights")
        weights = wholes(op.weights, -MAX_NUMBER, MAX_NUMBER, "a weight", MAX_TAPS)
        need(len(weights) == len(taps), "it has other weights than taps")


def _gather(op: ops.Gather, p: Place) -> None:
    _arity(p, 1, MAX_INPUTS)
    _timed(p)
    need(op.how in ("sum", "max"), "it is neither a sum nor a maximum")
    width = whole(op.width, 1, MAX_TAPS, "its width")
    need(elements(p.output) * width <= MAX_TAPS, f"it has more than {MAX_TAPS} entries")
    check_index(op.index, elements(p.output) * width, sum(map(elements, p.inputs)), True, "its index")


def _pointwise(p: Place) -> None:
    """Inputs of the output's size, or of one position."""
    _timed(p)
    for x in p.inputs:
        need(x.channels == p.output.channels, "its inputs differ in their channels")
        need(x.positions in (1, p.output.positions), "its inputs differ in their positions")
    need(any(x.positions == p.output.positions for x in p.inputs), "its value is larger than its inputs")


def _combine(op: ops.Combine, p: Place) -> None:
    _arity(p, 1, MAX_INPUTS)
    _pointwise(p)
    coefficients = wholes(op.coefficients, -MAX_NUMBER, MAX_NUMBER, "a coefficient", MAX_INPUTS)
    need(len(coefficients) == len(p.inputs), "it has other coefficients than inputs")
    whole(op.constant, -MAX_NUMBER, MAX_NUMBER, "the constant")


def _multiply(op: ops.Multiply, p: Place) -> None:
    _arity(p, 2, 2)
    _pointwise(p)


def _affine(op: ops.Affine, p: Place) -> None:
    _arity(p, 1, 1)
    _pointwise(p)
    mirror = p.numbers.mirrors.get(op.name)
    if mirror is None:
        raise Refused("the plan has no such mirror")
    need(len(mirror.signs) == len(mirror.shifts) == p.output.channels, "its vectors have other channels")


def _clip(op: ops.Clip, p: Place) -> None:
    _arity(p, 1, 1)
    _pointwise(p)
    low, high = (
        None if x is None else whole(x, -MAX_NUMBER, MAX_NUMBER, "a limit") for x in (op.low, op.high)
    )
    need(low is None or high is None or low <= high, "its limits are the wrong way round")


def _choice(op: ops.Choice, p: Place) -> None:
    need(op.how in ("max", "min", *COMPARISONS), "it chooses in an unknown way")
    _pointwise(p)
    if op.constant is None:
        _arity(p, 2, 2)
    else:
        _arity(p, 1, 1)
        whole(op.constant, -MAX_NUMBER, MAX_NUMBER, "the constant")


def _matmul(op: ops.MatMul, p: Place) -> None:
    _arity(p, 2, 2)
    _timed(p)
    a, b = p.inputs
    groups = whole(op.groups, 1, p.output.positions, "groups")
    need(
        a.positions % groups == 0 and b.positions == groups * a.channels, "its matrices do not fit each other"
    )
    need(
        (p.output.positions, p.output.channels) == (a.positions, b.channels),
        "its value has not the product's size",
    )


def _time_sum(op: ops.TimeSum, p: Place) -> None:
    _arity(p, 1, 1)
    x, y = p.inputs[0], p.output
    need(x.time and not y.time, "it sums over time what has none, or keeps it")
    need((x.positions, x.channels) == (y.positions, y.channels), "its value has another size than its input")


def _delay(op: ops.Delay, p: Place) -> None:
    _arity(p, 1, 1)
    need(p.inputs[0] == p.output, "its value has another size than its input")
    need(p.output.time, "it delays a value without time")


RULES: dict[type[ops.Operation], Callable[[Any, Place], None]] = {
    ops.Quantize: _quantize,
    ops.Project: _project,
    ops.Neuron: _neuron,
    ops.Pool: _pool,
    ops.Gather: _gather,
    ops.Combine: _combine,
    ops.Multiply: _multiply,
    ops.Affine: _affine,
    ops.Clip: _clip,
    ops.Choice: _choice,
    ops.MatMul: _matmul,
    ops.TimeSum: _time_sum,
    ops.Delay: _delay,
}

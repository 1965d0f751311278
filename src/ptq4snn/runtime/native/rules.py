"""Each operation of a program as native ones. A neuron takes its projection along, a clip its sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network import program as ops
from ptq4snn.numerics.limits import INT32, ZERO_FRACTION_BITS
from ptq4snn.runtime.native.draft import FAST_ROWS, Draft
from ptq4snn.runtime.native.index_fields import axis_fields, index_fields
from ptq4snn.runtime.native.layout import Format, How, Kind, NativeOp
from ptq4snn.runtime.native.op_fields import (
    is_fast,
    neuron_fields,
    plain_bias,
    projection_fields,
    rescale_fields,
    state_fields,
    window_axes,
)
from ptq4snn.runtime.stepwise import Put, Take

__all__ = ["RULES", "delay_state"]

Array: TypeAlias = NDArray[Any]


def _plain(kind: Kind, op: ops.Operation, **fields: Any) -> NativeOp:
    return NativeOp(kind, op.output, sources=op.inputs, name=op.name, **fields)


def _quantize(draft: Draft, op: ops.Quantize) -> None:
    grid = draft.model.projections[op.name].input
    assert grid is not None
    value = draft.model.program.values[op.output]
    zeros = grid.zeros / 2**ZERO_FRACTION_BITS
    index = index_fields(op.index, value.positions, value.channels)
    draft.add(_plain(Kind.QUANTIZE, op, **index, inverse=1 / grid.scales, zeros=zeros))


def _fits32(draft: Draft, op: ops.Project) -> bool:
    low, high = draft.model.bounds.sums[op.name]
    n, x = draft.model.projections[op.name], draft.values[op.inputs[0]]
    sums = max(-int(low.min()), int(high.max())) << n.shift
    rows = draft.values[op.output].format in FAST_ROWS
    return not n.over_time and sums < INT32 and x.format is not Format.I64 and rows


def _project(draft: Draft, op: ops.Project) -> None:
    n = draft.model.projections[op.name]
    fields = projection_fields(draft.model, op)
    if n.over_time and n.role != "output":
        return _late(draft, op, fields)
    fast = _fits32(draft, op)
    native = _plain(Kind.PROJECT if fast else Kind.PROJECT_ROWS, op, **fields, **rescale_fields(n))
    goes_along = fast and op.groups == 1 and n.rescale is None
    if goes_along and isinstance(draft.only_reader(op.output), ops.Neuron):
        draft.waiting[op.output] = native
    else:
        draft.add(native)
    return None


def _late(draft: Draft, op: ops.Project, fields: dict[str, Any]) -> None:
    """Behind a sum over time: corrected where it sums other steps than at calibration, before any rescale."""
    n = draft.model.projections[op.name]
    raw = draft.temporary(op.output, Format.I64, draft.values[op.output].time)
    draft.add(replace(_plain(Kind.PROJECT_ROWS, op, **fields), output=raw))
    late = {"cin": fields["cout"], "cout": fields["cout"], "bias": plain_bias(n), **rescale_fields(n)}
    correction = _plain(Kind.OVER_TIME, op, steps=draft.model.program.steps, **late)
    draft.add(replace(correction, sources=(raw,)))


def _neuron(draft: Draft, op: ops.Neuron) -> None:
    model, (x,) = draft.model, op.inputs
    second = -1 if op.potential is None else op.potential
    fast = is_fast(model, op) and (second < 0 or draft.values[second].format is Format.I32)
    before = draft.waiting.pop(x, None)
    if before is not None and not fast:
        draft.add(before)
        before = None
    fast = fast and (before is not None or draft.values[x].format in FAST_ROWS)
    fields = neuron_fields(model, op, fast)
    state = {} if op.once else state_fields(model, op, draft.state_of(op.output))
    if before is not None:
        draft.add(
            replace(before, kind=Kind.PROJECT_NEURON, output=op.output, second=second, **fields, **state)
        )
    elif fast:
        draft.add(_plain(Kind.NEURON, op, second=second, **fields, **state))
    elif op.channel is None or op.once:
        draft.add(_plain(Kind.NEURON_ANY, op, second=second, **fields, **state))
    else:  # the state is one row for the whole sample
        loaded = draft.temporary(op.output, Format.I64, time=False)
        draft.add(NativeOp(Kind.LOAD_STATE, loaded, name=op.name, **state))
        draft.add(replace(_plain(Kind.NEURON_ANY, op, second=second, **fields), sources=(x, loaded)))
        draft.add(NativeOp(Kind.STORE_STATE, sources=(loaded,), name=op.name, **state))


def _taps(draft: Draft, op: ops.Pool | ops.Gather, taps: Array, weights: Array | None) -> None:
    table = taps.astype(np.int32)
    fields = {"how": How[op.how], "taps": taps.shape[1], "table": table, "pool_weights": weights}
    draft.add(_plain(Kind.POOL, op, pads_zero=True, wide=draft.wide(op), **fields))


def _pool(draft: Draft, op: ops.Pool) -> None:
    if op.window is not None:
        fields = {"how": How[op.how], "taps": prod(op.window.kernel), "window": window_axes(op.window)}
        return draft.add(_plain(Kind.POOL, op, wide=draft.wide(op), **fields))
    if op.axes is not None:
        return draft.add(_plain(Kind.POOL, op, how=How.sum, wide=draft.wide(op), **axis_fields(op.axes)))
    taps, weights = op.table(draft.values[op.output].positions)
    return _taps(draft, op, taps, None if weights is None else weights.astype(np.int32))


def _moved_rows(index: Array, channels: int) -> Array | None:
    """Taps [P, width] of a gather [P, C, width] that moves whole rows; else None."""
    rows = np.where(index[:, 0] < 0, -1, index[:, 0] // channels)
    whole = np.where(rows[:, None] < 0, -1, rows[:, None] * channels + np.arange(channels)[:, None])
    return rows if np.array_equal(whole, index) else None


def _gather(draft: Draft, op: ops.Gather) -> None:
    value, source = draft.values[op.output], draft.values[op.inputs[0]]
    fields = index_fields(op.index, value.positions, value.channels * op.width)
    if "index_strides" in fields:
        fields |= {"how": How[op.how], "width": op.width}
        return draft.add(_plain(Kind.GATHER, op, wide=draft.wide(op), **fields))
    index = op.index.array().reshape(value.positions, value.channels, op.width)
    alike = len(op.inputs) == 1 and source.channels == value.channels
    rows = _moved_rows(index, value.channels) if alike else None
    if rows is not None:
        return _taps(draft, op, rows, None)
    fields = {"how": How[op.how], "width": op.width, "index": index.astype(np.int32)}
    return draft.add(_plain(Kind.GATHER, op, wide=draft.wide(op), **fields))


def _combine(draft: Draft, op: ops.Combine) -> None:
    numbers = np.array(op.coefficients, dtype=np.int64)
    low, high = draft.model.bounds.values[op.output]
    wide = draft.wide(op, op.constant, *op.coefficients)
    native = _plain(
        Kind.COMBINE, op, coefficients=numbers, constant=op.constant, low=low, high=high, wide=wide
    )
    reader = draft.only_reader(op.output)
    # sums of spikes are added on their planes, where nothing can be clipped on the way
    if isinstance(reader, ops.Clip) and draft.values[reader.output].format > Format.PLANES3:
        draft.waiting[op.output] = native
    else:
        draft.add(native)


def _clip(draft: Draft, op: ops.Clip) -> None:
    low, high = draft.model.bounds.values[op.output]  # beyond these nothing is clipped
    low = low if op.low is None else max(low, op.low)
    high = high if op.high is None else min(high, op.high)
    before = draft.waiting.pop(op.inputs[0], None)
    if before is not None:
        draft.add(replace(before, output=op.output, low=low, high=high))
    else:
        draft.add(_plain(Kind.CLIP, op, low=low, high=high, wide=draft.wide(op)))


def _multiply(draft: Draft, op: ops.Multiply) -> None:
    draft.add(_plain(Kind.MULTIPLY, op, wide=draft.wide(op)))


def _affine(draft: Draft, op: ops.Affine) -> None:
    m, channels = draft.model.mirrors[op.name], draft.values[op.output].channels
    signs, shifts = (np.broadcast_to(a, (channels,)).astype(np.int32) for a in (m.signs, m.shifts))
    draft.add(_plain(Kind.AFFINE, op, signs=signs, shifts=shifts, wide=draft.wide(op)))


def _choice(draft: Draft, op: ops.Choice) -> None:
    wide = draft.wide(op, op.constant)
    draft.add(_plain(Kind.CHOICE, op, how=How[op.how], constant=op.constant or 0, wide=wide))


def _matmul(draft: Draft, op: ops.MatMul) -> None:
    draft.add(_plain(Kind.MATMUL, op, groups=op.groups, wide=draft.wide(op)))


def _time_sum(draft: Draft, op: ops.TimeSum) -> None:
    draft.add(_plain(Kind.TIME_SUM, op, state=draft.state_of(op.output)))


def _delay(draft: Draft, op: ops.Delay) -> None:
    """Loaded at every step; `planner.py` stores its input behind the loop's last operation."""
    draft.add(NativeOp(Kind.LOAD_STATE, op.output, name=op.name, **delay_state(draft, op)))


def delay_state(draft: Draft, op: ops.Delay) -> dict[str, Any]:
    known = op.output in draft.states
    number = draft.states.index(op.output) if known else draft.state_of(op.output)
    return state_fields(draft.model, op, number)


def _take(draft: Draft, op: Take) -> None:
    draft.add(_plain(Kind.TAKE, op))


def _put(draft: Draft, op: Put) -> None:
    draft.add(_plain(Kind.PUT, op))


RULES: dict[type[ops.Operation], Callable[[Draft, Any], None]] = {
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
    Take: _take,
    Put: _put,
}

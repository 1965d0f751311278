"""Projections in NumPy: one matrix product a tap, in floats that hold every sum exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptq4snn.network.index import window_taps
from ptq4snn.network.program import Project
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS
from ptq4snn.runtime.numpy_run import Array, Kernel, Run, carrier
from ptq4snn.runtime.parameters import Integers, Model, ProjectionNumbers

__all__ = ["border_map", "project_kernel", "tapped"]

BLOCK = 2**19  # elements of a table of taps: it should stay in the cache
MOST = 2**24  # of one sample's: a few positions after the other, beyond it


def tapped(x: Array, taps: Integers) -> Array:
    """Positions `taps` [P_out] of x [..., P, C]; 0 where a tap is -1."""
    out = x[..., taps, :]
    outside = taps < 0
    if outside.any():
        out[..., outside, :] = 0
    return out


def _taps(op: Project, positions: int) -> Integers:
    """[P_out, K]"""
    return np.arange(positions)[:, None] if op.window is None else window_taps(op.window)


def rshift_even(a: Integers, n: int) -> Integers:
    """a / 2^n, halves to even."""
    down = a >> n
    rest = a - (down << n)
    half = 1 << (n - 1)
    up: Integers = ((rest > half) | ((rest == half) & (down & 1 == 1))).astype(np.int64)
    return down + up


def border_map(n: ProjectionNumbers, op: Project, positions: int) -> Integers:
    """The bias, of each position where it has one, with the input's zero point under the taps inside: [1 or
    P_out, Cout]."""
    if n.input is None or not n.input.inside.any():
        return n.bias if n.bias.ndim == 2 else n.bias[None]
    groups, (cout, inside) = op.groups, n.weight.shape[:2]
    zeros = np.broadcast_to(n.input.inside, (inside * groups,)).reshape(groups, 1, inside, 1)
    w = n.weight.reshape(groups, cout // groups, inside, -1).astype(np.int64)
    by_tap = (w * zeros).sum(2).reshape(cout, -1) << n.shift  # [Cout, K]
    present = (_taps(op, positions) >= 0).astype(np.float64)  # [P_out, K]
    inside_image = (present @ by_tap.T.astype(np.float64)).astype(np.int64)  # exact: proven below 2^53
    return rshift_even((n.bias << ZERO_FRACTION_BITS) - inside_image, ZERO_FRACTION_BITS)


def project_kernel(model: Model, op: Project) -> Kernel:
    n, x = model.projections[op.name], model.program.values[op.inputs[0]]
    lo, hi = model.bounds.sums[op.name]
    sums = carrier(int(max(-lo.min(), hi.max())))
    largest = max(map(abs, model.bounds.values[op.output]))
    wide = n.over_time or n.rescale is not None
    dtype = np.float64 if wide else carrier(largest)
    bias = border_map(n, op, x.positions).astype(dtype)
    product = _product(n, op, x.positions, sums)
    finish = _finish(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        y = product(inputs[0].astype(sums, copy=False)).astype(dtype, copy=False)
        y *= dtype(2**n.shift)
        y += bias
        return finish(run, y)

    return kernel


def _product(n: ProjectionNumbers, op: Project, positions: int, dtype: Any) -> Callable[[Array], Array]:
    """Wq x of x [T, B, P, Cin]: [T, B, P_out, Cout]."""
    taps, groups = _taps(op, positions), op.groups
    cout, inside = n.weight.shape[:2]
    # [G, K, Cin / G, Cout / G]
    w = n.weight.reshape(groups, cout // groups, inside, -1).transpose(0, 3, 2, 1).astype(dtype)
    if groups > 1:
        return lambda x: _grouped(x, taps, w)
    matrix = np.ascontiguousarray(w.reshape(-1, cout))  # [K Cin, Cout]
    if len(taps) == positions and np.array_equal(taps[:, 0], np.arange(positions)) and taps.shape[1] == 1:
        return lambda x: (x.reshape(-1, inside) @ matrix).reshape(*x.shape[:3], cout)
    return lambda x: _dense(x, taps, matrix)


def _dense(x: Array, taps: Integers, matrix: Array) -> Array:
    """All taps of a few samples side by side, then one product."""
    samples = x.reshape(-1, *x.shape[2:])
    rows, (inside, cout) = taps.shape[0], matrix.shape
    y = np.empty((len(samples), rows, cout), dtype=matrix.dtype)
    size, some = max(1, BLOCK // (rows * inside)), max(1, MOST // inside)
    for begin in range(0, len(samples), size):
        part = samples[begin : begin + size]
        padded = np.concatenate([part, np.zeros((len(part), 1, part.shape[2]), part.dtype)], axis=1)
        for first in range(0, rows, some):
            at = taps[first : first + some]
            columns = np.take(padded, at.reshape(-1), axis=1, mode="wrap")  # -1 is the row of zeros
            found = (columns.reshape(-1, inside) @ matrix).reshape(len(part), len(at), cout)
            y[begin : begin + size, first : first + some] = found
    return y.reshape(*x.shape[:2], rows, cout)


def _grouped(x: Array, taps: Integers, w: Array) -> Array:
    """Tap by tap, each group for itself."""
    groups, _, inside, out = w.shape
    y = np.zeros((*x.shape[:2], len(taps), groups * out), dtype=w.dtype)
    for k, at in enumerate(taps.T):
        part = tapped(x, at)
        if inside == 1:  # depthwise: each channel for itself
            y += np.repeat(part, out, axis=-1) * w[:, k].reshape(-1)
        else:
            split = part.reshape(-1, groups, inside).transpose(1, 0, 2)
            y += (split @ w[:, k]).transpose(1, 0, 2).reshape(y.shape)
    return y


def _finish(model: Model, op: Project) -> Callable[[Run, Array], Array]:
    """Another number of steps than at calibration, and the rescale."""
    n, calibrated = model.projections[op.name], model.program.steps
    bias = n.bias.astype(np.float64)
    narrow = carrier(max(map(abs, model.bounds.values[op.output])))

    def finish(run: Run, y: Array) -> Array:
        if n.over_time and n.role != "output" and run.total != calibrated:
            y = np.rint((y - bias) * (calibrated / run.total) + bias)
        if n.rescale is not None:
            half = 2 ** (n.rescale.bits - 1)
            y = np.clip(np.rint(y * (n.rescale.multipliers * 2.0**-n.rescale.shifts)), -half, half - 1)
        return y.astype(narrow, copy=False)

    return finish

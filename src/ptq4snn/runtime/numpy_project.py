"""Projections in NumPy: one matrix product a tap, in floats that hold every sum exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.index import Window, window_taps
from ptq4snn.network.program import Project
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS
from ptq4snn.runtime.numpy_run import Array, Kernel, Run, carrier
from ptq4snn.runtime.parameters import Integers, Model, ProjectionNumbers

__all__ = ["border_map", "border_rows", "project_kernel", "tapped"]

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


def _patterns(window: Window | None, positions: int) -> tuple[NDArray[np.bool_], Integers]:
    """Taps inside of the image, [R, K] different patterns, and which of them is a position's [P_out]."""
    if window is None:
        return np.ones((1, 1), dtype=np.bool_), np.zeros(positions, dtype=np.int64)
    patterns, which = np.ones((1, 1), dtype=np.bool_), np.zeros(1, dtype=np.int64)
    for d, n in enumerate(window.size):
        at = np.arange(window.out_size[d])[:, None] * window.stride[d] - window.before[d]
        at = at + np.arange(window.kernel[d]) * window.dilation[d]  # [out, kernel]
        own, number = np.unique((at >= 0) & (at < n), axis=0, return_inverse=True)
        which = (which[:, None] * len(own) + number.reshape(-1)).reshape(-1)
        both = patterns[:, None, :, None] & own[None, :, None, :]
        patterns = both.reshape(len(patterns) * len(own), -1)
    return patterns, which


def _different(rows: Integers) -> tuple[Integers, Integers]:
    """The different ones of rows [n, k], and the number of each row's [n]; told apart by one sum of each."""
    mix = np.random.default_rng(0).integers(-(2**62), 2**62, rows.shape[1]) * 2 + 1
    _, first, which = np.unique((rows * mix).sum(1), return_index=True, return_inverse=True)  # modulo 2^64
    if not np.array_equal(rows[first][which], rows):  # two sums are equal by chance
        found, which = np.unique(rows, axis=0, return_inverse=True)
        return found, which.reshape(-1)
    return rows[first], which


def border_rows(n: ProjectionNumbers, op: Project, positions: int) -> tuple[Integers, Integers | None]:
    """The bias with the input's zero point under the taps inside: different rows [R, Cout], and which of them
    is a position's [P_out]; None where one serves all."""
    if n.input is None or not n.input.inside.any():
        rows, which = (n.bias[None], None) if n.bias.ndim == 1 else _different(n.bias)
    else:
        patterns, which = _patterns(op.window, positions)
        moved, own = _moved(n, op, patterns), n.bias.ndim == 2  # its own bias for each position
        moved = (n.bias << ZERO_FRACTION_BITS) - (moved[which] if own else moved)
        rows, again = _different(rshift_even(moved, ZERO_FRACTION_BITS))
        which = again if own else again[which]
    return rows, None if len(rows) == 1 else which


def border_map(n: ProjectionNumbers, op: Project, positions: int) -> Integers:
    """The bias of every position [1 or P_out, Cout]."""
    rows, which = border_rows(n, op, positions)
    return rows if which is None else rows[which]


def _moved(n: ProjectionNumbers, op: Project, present: NDArray[np.bool_]) -> Integers:
    """W z of the input's zero points under the taps that are present [R, K], in 2^-16: [R, Cout]."""
    assert n.input is not None
    groups, (cout, inside) = op.groups, n.weight.shape[:2]
    zeros = np.broadcast_to(n.input.inside, (inside * groups,)).reshape(groups, 1, inside, 1)
    w = n.weight.reshape(groups, cout // groups, inside, -1).astype(np.int64)
    by_tap = (w * zeros).sum(2).reshape(cout, -1) << n.shift  # [Cout, K]
    found: Integers = (present.astype(np.float64) @ by_tap.T.astype(np.float64)).astype(np.int64)
    return found  # exact: proven below 2^53


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

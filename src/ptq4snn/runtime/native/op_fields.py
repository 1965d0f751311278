"""Numbers of projections and neurons as the kernels read them: int32, padded to 64 channels."""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.index import Window
from ptq4snn.network.program import Delay, Neuron, Project
from ptq4snn.numerics.limits import INT32
from ptq4snn.runtime.native.layout import HOT_WIDTHS, RESETS, WIDTHS, padded
from ptq4snn.runtime.numpy_project import border_rows
from ptq4snn.runtime.parameters import Model, NeuronNumbers, ProjectionNumbers
from ptq4snn.runtime.state import rows_of

__all__ = [
    "is_fast", "neuron_fields", "plain_bias", "projection_fields", "rescale_fields", "state_fields",
    "window_axes",
]  # fmt: skip

Array: TypeAlias = NDArray[Any]

INT16 = 2**15
SAFE_PRODUCT, SAFE_SHIFT = 2**30, 30  # of int32, with room for rounding


def row(values: Array, channels: int, dtype: Any = np.int32) -> Array:
    """One number for each channel, or one for all, in a padded row."""
    out = np.zeros(padded(channels), dtype=dtype)
    out[:channels] = values
    return out


def window_axes(w: Window) -> Array:
    """A window [axes, 6] as the kernels read it (csrc/window.h)."""
    parts = (w.size, w.kernel, w.stride, w.before, w.dilation, w.out_size)
    return np.array(parts, dtype=np.int32).T.copy()


def _reads_itself(w: Window) -> bool:
    """Whether every position of the output is made of the same one of the input."""
    return w.out_size == w.size and prod(w.kernel) == 1 and not any(w.before)


def plain_bias(n: ProjectionNumbers) -> Array:
    return row(n.bias, len(n.bias))


def _bias(n: ProjectionNumbers, op: Project, positions: int) -> dict[str, Any]:
    """Bias rows [R, padded] and the row of each position: a border has only a few different ones."""
    rows, which = border_rows(n, op, positions)
    bias = np.stack([row(r, n.weight.shape[0]) for r in rows])
    return {"bias": bias, "bias_row": None if which is None else which.astype(np.int32)}


def rescale_fields(n: ProjectionNumbers) -> dict[str, Any]:
    if n.rescale is None:
        return {}
    half = 2 ** (n.rescale.bits - 1)
    m, shift = (row(a, n.weight.shape[0]) for a in (n.rescale.multipliers, n.rescale.shifts))
    return {"rescale_m": m, "rescale_n": shift, "lo": -half, "hi": half - 1}


def projection_fields(model: Model, op: Project) -> dict[str, Any]:
    """All but the rescale."""
    n, x = model.projections[op.name], model.program.values[op.inputs[0]]
    cout, inside = n.weight.shape[:2]
    window = None if op.window is None or _reads_itself(op.window) else window_axes(op.window)
    low, high = model.bounds.sums[op.name]
    return {
        "taps": 1 if op.window is None else prod(op.window.kernel), "window": window,
        "cin": x.channels, "cout": cout,
        "groups": op.groups, "bits": n.bits, "shift": n.shift,
        "narrow": bool(low.min() >= -INT16 and high.max() < INT16),
        "weights": np.ascontiguousarray(n.weight.reshape(cout, inside, -1).transpose(2, 1, 0)),
        **_bias(n, op, x.positions),
    }  # fmt: skip


def _largest(*arrays: Array) -> int:
    return max(int(np.abs(a).max()) for a in arrays)


def _gain(model: Model, op: Neuron) -> int:
    return op.factor << model.neurons[op.name].shift


def is_fast(model: Model, op: Neuron) -> bool:
    """Whether the neuron's numbers fit the kernels of 32 bits."""
    n = model.neurons[op.name]
    if op.channel is not None or op.carried or n.over_time or n.most > 1 or abs(_gain(model, op)) >= INT32:
        return False
    if not op.once and not set(n.bits.tolist()) <= set(HOT_WIDTHS):
        return False
    return (
        model.bounds.potentials[op.name] < INT32 and int(n.low.min()) >= -INT32 and int(n.high.max()) < INT32
    )


def _needs_int64(n: NeuronNumbers, potential: int) -> bool:
    state = _largest(n.low, n.high)
    products = max(state * int(n.charge_m.max()), potential * int(n.settle_m.max()))
    return products >= SAFE_PRODUCT or _largest(n.charge_n, n.settle_n) > SAFE_SHIFT


def _phases(model: Model, op: Neuron) -> Array | None:
    """Numbers of the elements, where dither looks at them and they are not in order."""
    if op.element is None or model.neurons[op.name].rounding != "dither":
        return None
    element = op.element.array()
    return None if np.array_equal(element, np.arange(len(element))) else element.astype(np.int32)


def neuron_fields(model: Model, op: Neuron, fast: bool) -> dict[str, Any]:
    """All but the state, for the fast kernels or for the general one."""
    n, channels = model.neurons[op.name], len(model.neurons[op.name].bits)
    vectors = {
        "theta": n.theta, "rho": n.rho, "charge_m": n.charge_m, "charge_n": n.charge_n,
        "settle_m": n.settle_m, "settle_n": n.settle_n, "state_low": n.low, "state_high": n.high,
    }  # fmt: skip
    return {
        **{name: row(a, channels, np.int32 if fast else np.int64) for name, a in vectors.items()},
        "neuron_channels": channels, "reset": RESETS.index(n.reset), "dither": n.rounding == "dither",
        "wide_products": _needs_int64(n, model.bounds.potentials[op.name]), "once": op.once,
        "gain": _gain(model, op), "bound": model.bounds.potentials[op.name], "most": n.most,
        "steps": model.program.steps if n.over_time else 0,
        "channel": None if op.channel is None else op.channel.array().astype(np.int32),
        "element": _phases(model, op),
    } | _lift_fields(n, op, channels)  # fmt: skip


def _lift_fields(n: NeuronNumbers, op: Neuron, channels: int) -> dict[str, Any]:
    if not op.carried:
        return {}
    lift = {"lift_m": n.lift_m, "lift_n": n.lift_n}
    return {"carried": True} | {name: row(a, channels, np.int64) for name, a in lift.items()}


def state_fields(model: Model, op: Neuron | Delay, state: int) -> dict[str, Any]:
    rows = rows_of(model, op)
    counts = dict(rows.widths)
    return {
        "state": state,
        "widths": np.array([counts.get(w, 0) for w in WIDTHS], dtype=np.int32),
        "order": None if len(rows.widths) == 1 else rows.order.astype(np.int32),
        "zero": row(rows.zero, len(rows.zero)) if rows.zero.any() else None,
    }

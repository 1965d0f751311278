"""Every operation of a program as a function on NumPy arrays [T, B, positions, channels].

Whole numbers are carried in floats: float32 where bounds.py proves that they stay below 2^24, else float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptq4snn.network import program as ops
from ptq4snn.numerics.limits import ZERO_FRACTION_BITS
from ptq4snn.runtime.numpy_neuron import neuron_kernel
from ptq4snn.runtime.numpy_project import project_kernel, tapped
from ptq4snn.runtime.numpy_run import Array, Kernel, Run, carrier
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.stepwise import Put, Take

__all__ = ["kernel_of"]

COMPARE = {
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "ne": np.not_equal, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def kernel_of(model: Model, op: ops.Operation) -> Kernel:
    return _KERNELS[type(op)](model, op)


def _carrier(model: Model, op: ops.Operation) -> Any:
    return carrier(max(map(abs, model.bounds.values[op.output])))


def _quantize(model: Model, op: ops.Quantize) -> Kernel:
    grid, value = model.projections[op.name].input, model.program.values[op.output]
    assert grid is not None
    index, inverse, zero = op.index.array(), 1 / grid.scales, grid.zeros / 2**ZERO_FRACTION_BITS

    def kernel(run: Run, _: Sequence[Array]) -> Array:
        x = run.samples[..., index].astype(np.float64)
        x[..., index < 0] = 0
        x = x.reshape(*x.shape[:2], value.positions, value.channels)
        return np.clip(np.rint(x * inverse + zero), 0, 255).astype(np.float32)

    return kernel


def _pool(model: Model, op: ops.Pool) -> Kernel:
    positions, dtype = model.program.values[op.output].positions, _carrier(model, op)
    taps, listed = op.table(positions)
    weights = np.ones(taps.shape) if listed is None else listed
    padding = -np.inf if op.window is not None else 0.0  # which takes no part in a maximum

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        out: Array | None = None
        for at, w in zip(taps.T, weights.T, strict=True):
            part = tapped(inputs[0].astype(dtype, copy=False), at)
            if op.how == "max":
                part[..., at < 0, :] = padding
                out = part if out is None else np.maximum(out, part)
            else:
                if listed is not None:
                    part *= w[:, None].astype(dtype)
                out = part if out is None else out + part
        assert out is not None
        return out

    return kernel


def _gather(model: Model, op: ops.Gather) -> Kernel:
    value, dtype = model.program.values[op.output], _carrier(model, op)
    index = op.index.array().reshape(-1, op.width)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        steps = max(len(x) for x in inputs)
        flat = [x.reshape(*x.shape[:2], -1).astype(dtype, copy=False) for x in inputs]
        flat = [np.broadcast_to(x, (steps, *x.shape[1:])) for x in flat]
        flat.append(np.zeros((*flat[0].shape[:2], 1), dtype=dtype))  # -1 is the last
        x = np.concatenate(flat, axis=-1)
        out = x[..., index[:, 0]]
        for at in index.T[1:]:
            out = out + x[..., at] if op.how == "sum" else np.maximum(out, x[..., at])
        return out.reshape(*out.shape[:2], value.positions, value.channels)

    return kernel


def _combine(model: Model, op: ops.Combine) -> Kernel:
    dtype = _carrier(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        out: Array = np.full((1, 1, 1, 1), op.constant, dtype=dtype)
        for c, x in zip(op.coefficients, inputs, strict=True):
            out = out + (x.astype(dtype, copy=False) if c == 1 else x.astype(dtype, copy=False) * dtype(c))
        return out

    return kernel


def _multiply(model: Model, op: ops.Multiply) -> Kernel:
    dtype = _carrier(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        product: Array = inputs[0].astype(dtype, copy=False) * inputs[1].astype(dtype, copy=False)
        return product

    return kernel


def _affine(model: Model, op: ops.Affine) -> Kernel:
    mirror, dtype = model.mirrors[op.name], _carrier(model, op)
    sign, shift = mirror.signs.astype(dtype), mirror.shifts.astype(dtype)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        mirrored: Array = inputs[0].astype(dtype, copy=False) * sign + shift
        return mirrored

    return kernel


def _clip(model: Model, op: ops.Clip) -> Kernel:
    dtype = _carrier(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        x = inputs[0].astype(np.promote_types(inputs[0].dtype, dtype), copy=False)
        x = x if op.low is None else np.maximum(x, op.low)
        x = x if op.high is None else np.minimum(x, op.high)
        return x.astype(dtype, copy=False)

    return kernel


def _choice(model: Model, op: ops.Choice) -> Kernel:
    dtype = _carrier(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        a = inputs[0].astype(np.float64, copy=False)
        b = inputs[1].astype(np.float64, copy=False) if op.constant is None else float(op.constant)
        return COMPARE[op.how](a, b).astype(dtype)

    return kernel


def _matmul(model: Model, op: ops.MatMul) -> Kernel:
    a, b = (model.program.values[v] for v in op.inputs)
    rows, value, dtype = a.positions // op.groups, model.program.values[op.output], _carrier(model, op)

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        x = inputs[0].reshape(*inputs[0].shape[:2], op.groups, rows, a.channels).astype(dtype, copy=False)
        y = inputs[1].reshape(*inputs[1].shape[:2], op.groups, a.channels, b.channels)
        product: Array = x @ y.astype(dtype, copy=False)
        return product.reshape(*product.shape[:2], value.positions, value.channels)

    return kernel


def _time_sum(model: Model, op: ops.TimeSum) -> Kernel:
    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        total: Array = inputs[0].sum(0, dtype=np.float64)  # [B, P, C]
        if op.output in run.sums:
            total = total + run.sums[op.output]
        run.sums[op.output] = total
        return total[None]

    return kernel


def _delay(model: Model, op: ops.Delay) -> Kernel:
    value = model.program.values[op.output]

    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        batch = run.samples.shape[1]
        at_rest = np.zeros((batch, value.positions, value.channels), dtype=np.float32)
        before: Array = run.membranes.get(op.output, at_rest)
        return before[None]

    return kernel


def _take(model: Model, op: Take) -> Kernel:
    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        assert run.at is not None
        return inputs[0][run.at : run.at + 1]

    return kernel


def _put(model: Model, op: Put) -> Kernel:
    def kernel(run: Run, inputs: Sequence[Array]) -> Array:
        assert run.at is not None
        whole = run.values.get(op.output)
        if run.at == 0 or whole is None:
            whole = np.empty((run.steps, *inputs[0].shape[1:]), dtype=inputs[0].dtype)
        whole[run.at] = inputs[0][0]
        return whole

    return kernel


_KERNELS: dict[type[ops.Operation], Callable[[Model, Any], Kernel]] = {
    ops.Quantize: _quantize,
    ops.Project: project_kernel,
    ops.Neuron: neuron_kernel,
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

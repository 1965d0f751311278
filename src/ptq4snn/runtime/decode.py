"""A program's outputs as real numbers, as the quantized model gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.program import Neuron, Output, Program, Project
from ptq4snn.numerics.finishing import finished
from ptq4snn.runtime.parameters import Model, Reals

__all__ = ["Decoder", "late_heads", "worth_of"]

Array = NDArray[Any]


def late_heads(model: Model) -> Iterator[Project]:
    """Projections that read a sum over time and whose result is not rounded again."""
    for op in model.program.operations:
        if isinstance(op, Project):
            n = model.projections[op.name]
            if n.over_time and n.role == "output":
                yield op


class Decoder:
    """One output: integers [T, B, P, C] or [B, P, C] of its value to an array as the model returns it."""

    def __init__(self, model: Model, out: Output) -> None:
        self.out, self.model = out, model
        value = model.program.values[out.value]
        self.timed = value.time
        self.index = None if out.index.is_identity(value.positions * value.channels) else out.index.array()
        self.head = next((op for op in late_heads(model) if op.output == out.value), None)
        self.worth = worth_of(model, out)
        self.dtype = np.dtype(out.dtype)

    def __call__(self, y: NDArray[np.int64], steps: int, total: int) -> Array:
        """`steps` of this call, `total` since the sequence began."""
        x: Array = y[-1] if self.timed and self.out.time_axis is None else y  # a readout is of the last step
        x = x if self.head is None else self._at_steps(x, total)
        lead = x.shape[: x.ndim - 2]
        x = x if self.index is None else x.reshape(*lead, -1)[..., self.index]
        x = x.reshape(*lead, *self.out.shape).astype(self.dtype)
        for kind, *by in self.out.scalings:
            x = _scaled(x, kind, float(by[0]) if by else float(total))
        if self.worth is not None:
            unit, rest = self.worth
            real = x.astype(np.float64, copy=False) * unit
            x = (real if rest is None else real + rest).astype(np.float32)
        return finished(self._placed(x, steps), self.out.placed)

    def _at_steps(self, y: Array, total: int) -> Array:
        """The head reads a sum over other steps than at calibration: W x grows or shrinks, b stays."""
        assert self.head is not None
        if total == self.model.program.steps:
            return y
        bias = self.model.projections[self.head.name].bias.astype(np.float64)
        return (y.astype(np.float64) - bias) * (self.model.program.steps / total) + bias

    def _placed(self, x: Array, steps: int) -> Array:
        """Batch and time where the model has them."""
        out = self.out
        if out.time_axis is None:
            return np.ascontiguousarray(x if out.batch_axis == 0 else np.moveaxis(x, 0, out.batch_axis))
        if not self.timed:
            x = np.broadcast_to(x, (steps, *x.shape))
        if (out.time_axis, out.batch_axis) != (0, 1):
            x = np.moveaxis(x, (0, 1), (out.time_axis, out.batch_axis))
        return np.ascontiguousarray(x)


def _scaled(x: Array, kind: str, by: float) -> Array:
    """In x's own type, as torch does with a number."""
    scaled: Array = x * x.dtype.type(by) if kind == "mul" else x / x.dtype.type(by)
    return scaled


def worth_of(model: Model, out: Output) -> tuple[Reals, float | None] | None:
    """What follows the scalings, in float64 and rounded to float32: a factor of each element, and what is
    added; None: nothing."""
    if out.kind == "count":
        return (np.array(out.scales).reshape(-1, *[1] * (-out.axis - 1)), None) if out.scales else None
    assert out.name is not None
    if out.kind == "current":
        p = model.projections[out.name]
        unit = p.unit if p.rescale is None else p.rescale.scales
        return unit.reshape(-1, *[1] * (-out.axis - 1)), None
    return _potential_units(model, out)[out.index.array()].reshape(out.shape), model.neurons[out.name].v_rest


def _potential_units(model: Model, out: Output) -> Reals:
    """The unit of each element of a neuron's value."""
    n, op = model.neurons[str(out.name)], _neuron(model.program, str(out.name))
    value = model.program.values[op.output]
    if op.channel is not None:
        return n.unit[op.channel.array()]
    return np.tile(n.unit, value.positions)


def _neuron(program: Program, name: str) -> Neuron:
    return next(op for op in program.operations if isinstance(op, Neuron) and op.name == name)

"""Outputs of the model: which elements of which value, and how they become real numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ptq4snn.errors import UnsupportedOperation
from ptq4snn.lowering.numbering import Split
from ptq4snn.lowering.tracked import Constant, Fact, Refused
from ptq4snn.network.index import compact
from ptq4snn.network.plan import OutputPlan
from ptq4snn.network.program import Output

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["lower_output"]


def lower_output(w: Lowering, number: int, fact: Fact) -> Output:
    try:
        return _output(w, number, fact)
    except Refused as why:
        raise UnsupportedOperation(f"output {number} of the model {why}") from why


def _output(w: Lowering, number: int, x: Fact) -> Output:
    plan, dtype = w.plan.outputs[number], w.graph.values[w.graph.outputs[number]].dtype
    if isinstance(x, Constant) or x.kind == "data":
        raise Refused("is not made of spikes, currents or potentials")
    if x.kind == "real":
        raise Refused(f"is made of real numbers behind the projection '{x.name}'")
    if x.kind == "current" and plan.projection is None:
        raise Refused("is made of currents of different units")
    if x.summed is not None:
        raise Refused("is a sum of some of the time steps only")
    if dtype not in ("float32", "float64"):
        raise Refused(f"has the type {dtype}; return float32 or float64")
    x = w.builder.whole(x)
    s = w.builder.split(x)
    value = x.value
    time_axis, batch_axis = _axes(w, s, w.builder.of(value).time)
    kept = [d for d in range(len(s.shape)) if d not in (time_axis, batch_axis)]
    shape = tuple(s.shape[d] for d in kept)
    index = s.element.expand([1 if d in (time_axis, batch_axis) else n for d, n in enumerate(s.shape)])
    scaled = plan.projection is not None or bool(plan.output_scales)
    axis = plan.axis % len(s.shape) if scaled else 0
    if plan.output_scales and axis not in kept:
        raise Refused("has factors of channels along time steps or samples")
    kind = "potential" if x.kind == "potential" else "current" if plan.projection is not None else "count"
    return Output(
        value=value,
        kind=kind,
        name=x.name if x.kind == "potential" else plan.projection,
        axis=-sum(d >= axis for d in kept) if scaled else -1,
        index=compact(index.reshape(-1).numpy()),
        shape=shape,
        batch_axis=batch_axis,
        time_axis=time_axis,
        dtype=dtype,
        scalings=x.scalings,
        then=_then(plan, len(s.shape), kept),
        scales=plan.output_scales,
    )


def _then(plan: OutputPlan, rank: int, kept: list[int]) -> tuple[tuple[str, int], ...]:
    """What the output ends with, its axes counted among those of one sample at one step."""
    if any(axis % rank not in kept for _, axis in plan.then):
        raise Refused(f"ends with a {plan.then[0][0]} over time steps or samples")
    return tuple((how, kept.index(axis % rank) - len(kept)) for how, axis in plan.then)


def _axes(w: Lowering, s: Split, timed: bool) -> tuple[int | None, int]:
    """The axes of time and of the samples. Without one for time, it is the last step."""
    batch, steps = w.builder.batch, w.builder.steps
    varied = [d for d in range(len(s.shape)) if s.varies(d)]
    last = (steps - 1) * batch if timed else 0
    if s.separate and len(varied) == 1 and _runs(s, varied[0], 1, batch) and int(s.sample.min()) == last:
        return None, varied[0]
    if s.separate and len(varied) == 2 and int(s.sample.min()) == 0:
        for time_axis, batch_axis in (varied, varied[::-1]):
            if _runs(s, batch_axis, 1, batch) and _runs(s, time_axis, batch, steps):
                return time_axis, batch_axis
    raise Refused("has no axis of its own for the samples, or holds some of the time steps only")


def _runs(s: Split, axis: int, stride: int, count: int) -> bool:
    """Whether the samples along an axis are `stride` apart and `count`, whatever the other axis."""
    if s.shape[axis] != count:
        return False
    first = s.sample.narrow(axis, 0, 1)
    along = torch.arange(count).reshape([-1 if d == axis else 1 for d in range(len(s.shape))]) * stride
    return torch.equal(s.sample, first + along)

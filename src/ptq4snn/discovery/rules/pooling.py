"""Operations that join neighbours: means, sums, pooling, bilinear upsampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.discovery.facts import TIME, Count, Current, Fact, Membrane
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.rules.support import Rule, Unfollowed, call

__all__ = ["RULES"]

MAXIMUM = {
    "max_pool1d", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax",
    "max",
}  # fmt: skip


def average(fact: Fact, op: str, n: float, summed: bool, through: Callable[[Tensor, bool], Tensor]) -> Fact:
    """A mean (or, with `summed`, a sum) of n elements; `through` brings the channel numbers along."""
    weight = 1.0 if summed else 1.0 / n
    if isinstance(fact, Count):
        ids = through(fact.ids, False) if fact.ids is not None else None
        lo, hi = min(fact.lo * n, 0.0), max(fact.hi * n, 0.0)
        return replace(fact, factor=fact.factor * weight, lo=lo, hi=hi, ids=ids)
    if isinstance(fact, Current):
        sheets = tuple(
            replace(s, ids=through(s.ids, True), ops=(*s.ops, op), constant=s.constant * n * weight)
            for s in fact.sheets
        )
        factor, window, span = fact.factor * weight, fact.window * n, fact.span * n * weight
        return replace(fact, sheets=sheets, factor=factor, window=window, span=span)
    if isinstance(fact, Membrane):
        return fact
    raise Unfollowed("averages something that is neither spikes nor currents")


def reduce_ids(ids: Tensor, dims: list[int], keepdim: bool, exact: bool) -> Tensor:
    if exact:
        channel = ids % TIME
        if not torch.equal(channel.amin(dims), channel.amax(dims)):
            raise Unfollowed("mixes channels")
    return ids.amin(dims, keepdim=keepdim)


def crosses_time(ids: Tensor | None, dims: list[int]) -> bool:
    """Whether elements of different time steps are joined along `dims`."""
    if ids is None or not dims:
        return False
    step = (ids / TIME).floor()
    return not torch.equal(step.amin(dims), step.amax(dims))


def follow_mean(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    shape = g.values[node.inputs[0]].shape
    dims = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], (list, tuple)) else None
    axes = [d % len(shape) for d in dims] if dims else list(range(len(shape)))
    keepdim = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    n = prod(shape[d] for d in axes)
    fact = facts[0]
    out = average(fact, node.op, n, node.op == "sum", lambda i, exact: reduce_ids(i, axes, keepdim, exact))
    numbers = [s.ids for s in fact.sheets] if isinstance(fact, Current) else [getattr(fact, "ids", None)]
    over_time = node.op == "mean" and any(crosses_time(i, axes) for i in numbers)
    if isinstance(out, (Count, Current)) and over_time:
        out = replace(out, over_time=True)
    return [out]


def _tuple(x: Any, rank: int) -> tuple[int, ...]:
    values = tuple(x) if isinstance(x, (list, tuple)) else (x,)
    return values * rank if len(values) == 1 else values


def follow_avg_pool(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    rank = int(node.op[-2])
    defaults: list[Any] = [None, [], 0, False, True, None]
    kernel, stride, padding, ceil, include_pad, divisor = [*node.args[1:], *defaults[len(node.args) - 1 :]]
    kernel, pad = _tuple(kernel, rank), _tuple(padding, rank)
    if ceil or divisor is not None or (any(pad) and not include_pad):
        raise Unfollowed("averages windows of different sizes")
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    step = _tuple(stride, rank) if stride else kernel
    out = average(facts[0], node.op, prod(kernel), False, lambda i, _: pool(i, kernel, step, pad))
    if isinstance(out, Current) and any(pad):  # the border of zeros takes part
        out = replace(out, sheets=tuple(replace(s, uneven=s.uneven or node.op) for s in out.sheets))
    return [out]


def follow_adaptive_pool(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    rank = int(node.op[-2])
    sizes = g.values[node.inputs[0]].shape[-rank:]
    outs = _tuple(node.args[1], rank)
    n = 1
    for i, o in zip(sizes, outs, strict=True):
        if i % o and o % i:
            raise Unfollowed(f"pools {i} elements into {o} windows of different sizes")
        n *= max(1, i // o)
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[rank - 1]
    return [average(facts[0], node.op, n, False, lambda i, _: pool(i, outs))]


def follow_max(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    fact = facts[0]
    if isinstance(fact, Count):
        return [replace(fact, ids=_max_count_ids(g, node, fact.ids))]
    if isinstance(fact, Current):
        sheets = []
        for s in fact.sheets:
            ids = call(node, {node.inputs[0]: s.ids})[0]
            if not torch.equal(ids, -call(node, {node.inputs[0]: -s.ids})[0]):
                raise Unfollowed("takes a maximum over several channels or time steps")
            sheets.append(replace(s, ids=ids, ops=(*s.ops, "max_pool")))
        return [replace(fact, sheets=tuple(sheets))]
    raise Unfollowed("takes a maximum of something that is neither spikes nor currents")


def _max_count_ids(g: Graph, node: Node, ids: Tensor | None) -> Tensor | None:
    """A pool that keeps the shape leaves every element its channel, also where it looks at other channels."""
    if ids is None or g.values[node.outputs[0]].shape == tuple(ids.shape):
        return ids
    return call(node, {node.inputs[0]: ids})[0]


def follow_bilinear(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    before, after = g.values[node.inputs[0]].shape[-2:], g.values[node.outputs[0]].shape[-2:]
    align = node.args[2] if len(node.args) > 2 else node.kwargs.get("align_corners", False)
    if before == after:  # every weight is 0 or 1
        return [facts[0]]
    ratios = [a // b for a, b in zip(after, before, strict=True)]
    doubled = all(
        r > 0 and r & (r - 1) == 0 and r * b == a for r, a, b in zip(ratios, after, before, strict=True)
    )
    if align or not doubled:
        raise Unfollowed("resizes bilinearly by another ratio than a power of 2 without aligned corners")
    n = prod(2 * r for r in ratios if r > 1)  # weights are multiples of 1 / 2r along each axis
    return [average(facts[0], "bilinear", n, False, lambda i, _: F.interpolate(i, size=after))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(MAXIMUM, follow_max),
    **dict.fromkeys(["mean", "sum"], follow_mean),
    **dict.fromkeys(["avg_pool1d", "avg_pool2d", "avg_pool3d"], follow_avg_pool),
    **dict.fromkeys(["_adaptive_avg_pool2d", "_adaptive_avg_pool3d"], follow_adaptive_pool),
    "upsample_bilinear2d": follow_bilinear,
}

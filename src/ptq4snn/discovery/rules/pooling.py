"""Operations that join neighbours: means, sums, pooling, bilinear upsampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.discovery import calls
from ptq4snn.discovery.facts import TIME, Count, Current, Fact, Membrane
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.rules.support import Rule, Unfollowed, call
from ptq4snn.discovery.thin import spread, thin

__all__ = ["RULES"]


def average(fact: Fact, op: str, n: float, summed: bool, through: Callable[[Tensor, bool], Tensor]) -> Fact:
    """A mean (or, with `summed`, a sum) of n elements; `through` brings the channel numbers along."""
    weight = 1.0 if summed else 1.0 / n
    if isinstance(fact, Count):
        ids = spread(through(fact.ids, False)) if fact.ids is not None else None
        lo, hi = min(fact.lo * n, 0.0), max(fact.hi * n, 0.0)
        return replace(fact, factor=fact.factor * weight, lo=lo, hi=hi, ids=ids)
    if isinstance(fact, Current):
        sheets = tuple(
            replace(s, ids=spread(through(s.ids, True)), ops=(*s.ops, op), constant=s.constant * n * weight)
            for s in fact.sheets
        )
        factor, window, span = fact.factor * weight, fact.window * n, fact.span * n * weight
        return replace(fact, sheets=sheets, factor=factor, window=window, span=span)
    if isinstance(fact, Membrane):
        return fact
    raise Unfollowed("averages something that is neither spikes nor currents")


def reduce_ids(ids: Tensor, dims: list[int], keepdim: bool, exact: bool) -> Tensor:
    if exact:
        channel = thin(ids) % TIME
        if not torch.equal(channel.amin(dims), channel.amax(dims)):
            raise Unfollowed("mixes channels")
    return ids.amin(dims, keepdim=keepdim)


def crosses_time(ids: Tensor | None, dims: list[int]) -> bool:
    """Whether elements of different time steps are joined along `dims`."""
    if ids is None or not dims:
        return False
    step = (thin(ids) / TIME).floor()
    return not torch.equal(step.amin(dims), step.amax(dims))


def follow_mean(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    shape = g.values[node.inputs[0]].shape
    r = calls.reduction(node, len(shape))
    axes = list(r.axes)
    n = prod(shape[d] for d in axes)
    fact = facts[0]
    out = average(fact, node.op, n, r.how == "sum", lambda i, exact: reduce_ids(i, axes, r.keepdim, exact))
    numbers = [s.ids for s in fact.sheets] if isinstance(fact, Current) else [getattr(fact, "ids", None)]
    over_time = r.how == "mean" and any(crosses_time(i, axes) for i in numbers)
    if isinstance(out, (Count, Current)) and over_time:
        out = replace(out, over_time=True)
    return [out]


def follow_avg_pool(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    w = calls.window(node, g.values[node.inputs[0]].shape)
    if w.fixed:
        raise Unfollowed("divides by a number of its own")
    n = prod(w.kernel)
    if not w.alike:
        before, after = (g.values[v].shape[-w.rank :] for v in (node.inputs[0], node.outputs[0]))
        n = prod(calls.window_means(w, d, before[d], after[d]).down for d in range(w.rank))
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[w.rank - 1]
    out = average(
        facts[0], node.op, n, False,
        lambda i, _: pool(i, w.kernel, w.stride, w.padding, ceil_mode=w.ceil),
    )  # fmt: skip
    if (
        isinstance(out, Current) and any(w.padding) and not (w.whole and not w.alike)
    ):  # the border of zeros takes part
        out = replace(out, sheets=tuple(replace(s, uneven=s.uneven or node.op) for s in out.sheets))
    return [out]


def follow_adaptive_pool(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    outs = calls.output_sizes(node)
    rank = len(outs)
    sizes = g.values[node.inputs[0]].shape[-rank:]
    n = 1
    for i, o in zip(sizes, outs, strict=True):
        n *= calls.adaptive_means(i, o).down if i % o and o % i else max(1, i // o)
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
            sheets.append(replace(s, ids=spread(ids), ops=(*s.ops, "max_pool")))
        return [replace(fact, sheets=tuple(sheets))]
    raise Unfollowed("takes a maximum of something that is neither spikes nor currents")


def _max_count_ids(g: Graph, node: Node, ids: Tensor | None) -> Tensor | None:
    """A pool that keeps the shape leaves every element its channel, also where it looks at other channels."""
    if ids is None or g.values[node.outputs[0]].shape == tuple(ids.shape):
        return ids
    return call(node, {node.inputs[0]: ids})[0]


def follow_bilinear(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    before, after = g.values[node.inputs[0]].shape, g.values[node.outputs[0]].shape
    resized = calls.bilinear(node, before, after)
    if resized is None or any(r & (r - 1) for r in resized.ratios):
        raise Unfollowed("resizes bilinearly by another ratio than a power of 2 without aligned corners")
    if resized.ratios == (1, 1):  # every weight is 0 or 1
        return [facts[0]]
    ratios, after = resized.ratios, after[-2:]
    n = prod(2 * r for r in ratios if r > 1)  # weights are multiples of 1 / 2r along each axis
    return [average(facts[0], "bilinear", n, False, lambda i, _: F.interpolate(i, size=after))]


RULES: dict[str, Rule] = {
    "max pool": follow_max,
    "adaptive max pool": follow_max,
    "maximum": follow_max,
    "sum": follow_mean,
    "mean pool": follow_avg_pool,
    "adaptive mean pool": follow_adaptive_pool,
    "bilinear": follow_bilinear,
}

"""Operations that join neighbours: sums, means, maxima, pooling, bilinear upsampling."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ptq4snn.discovery import calls
from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.operands import complete
from ptq4snn.lowering.reduction import Table, reduce, whole_axis, window_axis
from ptq4snn.lowering.tracked import Fact, Refused, Scalings, Tracked

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["RULES"]


def divided(x: Tracked, factor: Fraction, by: Scalings, steps: int = 0) -> Tracked:
    """x as a mean: its integers are worth less."""
    scalings = (*x.scalings, *(s for s in by if s != ("div", 1.0)))
    return replace(x, factor=x.factor * factor, scalings=scalings, per_steps=x.per_steps + steps)


def follow_mean(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    x = complete(facts[0])
    shape = tuple(x.numbers.shape)
    r = calls.reduction(node, len(shape))
    axes, how = r.axes, "max" if r.how == "max" else "sum"
    over = w.builder.split(x)
    timed = [d for d in axes if over.varies(d)]
    out = x
    if how == "sum" and timed and len(axes) > len(timed):  # time first, then the rest
        out = reduce(w, out, {d: whole_axis(shape[d]) for d in timed}, how)
    out = reduce(w, out, {d: whole_axis(out.numbers.shape[d]) for d in axes}, how)
    if not r.keepdim:
        for d in sorted(axes, reverse=True):
            out = replace(out, numbers=out.numbers.squeeze(d))
    if r.how != "mean":
        return [out]
    n = prod(shape[d] for d in axes if d not in timed)
    by: Scalings = (("div", float(n)), ("steps",)) if timed else (("div", float(n)),)
    return [divided(out, Fraction(1, n), by, len(timed) > 0)]


def follow_window(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """max_pool and avg_pool."""
    p, maximum = calls.window(node, w.graph.values[node.inputs[0]].shape), node.op.startswith("max")
    x = complete(facts[0])
    shape, out = x.numbers.shape, w.graph.values[node.outputs[0]].shape
    if not maximum and not p.alike:
        lead = len(shape) - p.rank
        means = {lead + d: calls.window_means(p, d, shape[lead + d], out[lead + d]) for d in range(p.rank)}
        return [_weighted(w, x, means)]
    tables = {
        d: window_axis(shape[d], p.kernel[i], p.stride[i], p.padding[i], p.dilation[i], out[d])
        for i, d in enumerate(range(len(shape) - p.rank, len(shape)))
    }
    found = reduce(w, x, tables, "max" if maximum else "sum")
    if maximum:
        return [found]
    n = prod(p.kernel)
    return [divided(found, Fraction(1, n), (("div", float(n)),))]


def follow_adaptive(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    outs, maximum = calls.output_sizes(node), "max" in node.op
    rank = len(outs)
    x = complete(facts[0])
    shape = x.numbers.shape
    tables, sizes = {}, []
    lead = len(shape) - rank
    if not maximum and any(shape[lead + i] % out and out % shape[lead + i] for i, out in enumerate(outs)):
        return [
            _weighted(w, x, {lead + i: calls.adaptive_means(shape[lead + i], o) for i, o in enumerate(outs)})
        ]
    for d, out in zip(range(len(shape) - rank, len(shape)), outs, strict=True):
        n = shape[d]
        if n % out and out % n:
            raise Refused(f"pools {n} elements into {out} windows of different sizes")
        sizes.append(max(1, n // out))
        tables[d] = Table(n, torch.arange(out).reshape(-1, 1) * n // out + torch.arange(sizes[-1]))
    found = reduce(w, x, tables, "max" if maximum else "sum")
    if maximum:
        return [found]
    by = tuple(("div", float(n)) for n in sizes)  # one axis after the other, as torch does it
    return [divided(found, Fraction(1, prod(sizes)), by)]


def _weighted(w: Lowering, x: Tracked, means: dict[int, calls.Means]) -> Tracked:
    """Means of windows of different sizes, by axis."""
    tables = {
        d: Table(x.numbers.shape[d], torch.tensor(m.at), torch.tensor(m.weights)) for d, m in means.items()
    }
    down = prod(m.down for m in means.values())
    return divided(reduce(w, x, tables, "sum"), Fraction(1, down), (("div", float(down)),))


def follow_bilinear(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """Upsampling by a whole number r: weights are multiples of 1 / 2r along each axis."""
    x = complete(facts[0])
    after = w.graph.values[node.outputs[0]].shape
    resized = calls.bilinear(node, x.numbers.shape, after)
    if resized is None:
        raise Refused("resizes bilinearly by another ratio than a whole number without aligned corners")
    tables, down = {}, 1
    for d, ratio in zip(range(len(after) - 2, len(after)), resized.ratios, strict=True):
        if ratio == 1:
            continue
        n = x.numbers.shape[d]
        twice = (2 * torch.arange(after[d]) + 1 - ratio).clamp(min=0)  # 2r times the place between pixels
        first = twice // (2 * ratio)
        second = (first + 1).clamp(max=n - 1)
        share = twice % (2 * ratio)
        tables[d] = Table(n, torch.stack([first, second], 1), torch.stack([2 * ratio - share, share], 1))
        down *= 2 * ratio
    if not tables:
        return [x]
    found = reduce(w, x, tables, "sum")
    return [divided(found, Fraction(1, down), (("div", float(down)),))]


RULES: dict[str, Any] = {
    "sum": follow_mean,
    "maximum": follow_mean,
    "max pool": follow_window,
    "mean pool": follow_window,
    "adaptive max pool": follow_adaptive,
    "adaptive mean pool": follow_adaptive,
    "bilinear": follow_bilinear,
}

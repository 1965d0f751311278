"""Operations that join neighbours: sums, means, maxima, pooling, bilinear upsampling."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.reduction import Table, reduce, whole_axis, window_axis
from ptq4snn.lowering.support import complete
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
    given = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], (list, tuple, int)) else None
    dims = [given] if isinstance(given, int) else given
    axes = [d % len(shape) for d in dims] if dims else list(range(len(shape)))
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    how = "max" if node.op in ("amax", "max") else "sum"
    over = w.builder.split(x)
    timed = [d for d in axes if over.varies(d)]
    out = x
    if how == "sum" and timed and len(axes) > len(timed):  # time first, then the rest
        out = reduce(w, out, {d: whole_axis(shape[d]) for d in timed}, how)
    out = reduce(w, out, {d: whole_axis(out.numbers.shape[d]) for d in axes}, how)
    if not keep:
        for d in sorted(axes, reverse=True):
            out = replace(out, numbers=out.numbers.squeeze(d))
    if node.op != "mean":
        return [out]
    n = prod(shape[d] for d in axes if d not in timed)
    by: Scalings = (("div", float(n)), ("steps",)) if timed else (("div", float(n)),)
    return [divided(out, Fraction(1, n), by, len(timed) > 0)]


def _numbers(x: Any, rank: int) -> tuple[int, ...]:
    values = tuple(x) if isinstance(x, (list, tuple)) else (x,)
    return values * rank if len(values) == 1 else values


def follow_window(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """max_pool and avg_pool: kernel, stride, padding, and dilation or what to divide by."""
    rank, maximum = int(node.op.split("pool")[1][0]), node.op.startswith("max")
    defaults: list[Any] = [None, [], 0, 1, False] if maximum else [None, [], 0, False, True, None]
    args = [*node.args[1:], *defaults[len(node.args) - 1 :]]
    kernel, padding = _numbers(args[0], rank), _numbers(args[2], rank)
    stride = _numbers(args[1], rank) if args[1] else kernel
    dilation = _numbers(args[3], rank) if maximum else (1,) * rank
    if not maximum and (args[3] or args[5] is not None or (any(padding) and not args[4])):
        raise Refused("averages windows of different sizes")
    x = complete(facts[0])
    shape, out = x.numbers.shape, w.graph.values[node.outputs[0]].shape
    tables = {
        d: window_axis(shape[d], kernel[i], stride[i], padding[i], dilation[i], out[d])
        for i, d in enumerate(range(len(shape) - rank, len(shape)))
    }
    found = reduce(w, x, tables, "max" if maximum else "sum")
    if maximum:
        return [found]
    n = prod(kernel)
    return [divided(found, Fraction(1, n), (("div", float(n)),))]


def follow_adaptive(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    rank, maximum = int(node.op.split("pool")[1][0]), "max" in node.op
    x = complete(facts[0])
    shape = x.numbers.shape
    outs = _numbers(node.args[1], rank)
    tables, sizes = {}, []
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


def follow_bilinear(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """Upsampling by a whole number r: weights are multiples of 1 / 2r along each axis."""
    x = complete(facts[0])
    after = w.graph.values[node.outputs[0]].shape
    align = node.args[2] if len(node.args) > 2 else node.kwargs.get("align_corners", False)
    tables, down = {}, 1
    for d in range(len(after) - 2, len(after)):
        n, ratio = x.numbers.shape[d], after[d] // x.numbers.shape[d]
        if after[d] == n:
            continue
        if align or ratio * n != after[d]:
            raise Refused("resizes bilinearly by another ratio than a whole number without aligned corners")
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
    **dict.fromkeys(["mean", "sum", "amax", "max"], follow_mean),
    **dict.fromkeys(
        ["max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
         "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d"], follow_window,
    ),
    **dict.fromkeys(
        ["_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
         "adaptive_max_pool3d"], follow_adaptive,
    ),
    "upsample_bilinear2d": follow_bilinear,
}  # fmt: skip

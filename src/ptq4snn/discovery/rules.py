"""What every operation does to the facts of its inputs. Shapes and channels are followed by running the
operation itself on the channel numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map

from ptq4snn.discovery.facts import TIME, Constant, Count, Current, Data, Fact, Membrane, Opaque, Sheet
from ptq4snn.discovery.graph import Graph, Node, Ref

__all__ = ["apply"]

SHAPE = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "repeat",
    "clone", "contiguous", "_to_copy", "detach", "alias", "select", "slice", "split", "split_with_sizes",
    "unbind", "stack", "cat", "flip", "index", "index_select", "lift_fresh", "lift_fresh_copy", "roll",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "pixel_shuffle", "_reshape_alias",
}  # fmt: skip
MAXIMUM = {
    "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax",
}  # fmt: skip
MATMUL = {"bmm", "mm", "matmul", "dot", "mv"}
COMPARE = {"gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not"}


class Unfollowed(Exception):
    """The operation cannot be followed; the message says why."""


def call(node: Node, ids: dict[int, Tensor]) -> list[Tensor]:
    """Run the node's operation on other tensors."""
    _, name, overload = node.target.split(".")
    func = getattr(getattr(torch.ops.aten, name), overload)
    args, kwargs = tree_map(
        lambda a: ids[a.value] if isinstance(a, Ref) else a,
        (list(node.args), {k: v for k, v in node.kwargs.items() if k not in ("dtype", "memory_format")}),
        is_leaf=lambda a: isinstance(a, Ref),
    )
    return [t for t in tree_flatten(func(*args, **kwargs))[0] if isinstance(t, Tensor)]


def common_factor(a: float, b: float) -> float:
    """The finer of two quanta, if the coarser is a whole multiple of it."""
    fine, coarse = min(a, b), max(a, b)
    if abs(coarse / fine - round(coarse / fine)) > 1e-9:
        raise Unfollowed(f"adds numbers of unrelated quanta {a:g} and {b:g}")
    return fine


def follow_shape(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    kinds = {type(f) for f in facts} - {Constant}
    if kinds == {Count}:
        counts = [f for f in facts if isinstance(f, Count)]
        factor = counts[0].factor
        for c in counts:
            factor = common_factor(factor, c.factor)
        lo = min(c.lo * c.factor / factor for c in counts)
        hi = max(c.hi * c.factor / factor for c in counts)
        if len(counts) < len(facts) and node.op in ("stack", "cat"):
            lo, hi = min(lo, 0.0), max(hi, 0.0)  # a constant beside spikes must be zero padding
        sources = frozenset().union(*(c.sources for c in counts))
        ids = _ids_through(g, node, [f.ids if isinstance(f, Count) else None for f in facts])
        return [replace(counts[0], factor=factor, lo=lo, hi=hi, sources=sources, ids=i) for i in ids]
    if kinds == {Current}:
        currents = [f for f in facts if isinstance(f, Current)]
        first = currents[0]
        if any(len(c.sheets) != len(first.sheets) or c.factor != first.factor for c in currents):
            raise Unfollowed("joins currents that were summed in different ways")
        window = max(c.window for c in currents)
        columns = []
        for i in range(len(first.sheets)):
            sheets = [f.sheets[i] if isinstance(f, Current) else None for f in facts]
            columns.append(_sheet_through(g, node, sheets))
        outs = zip(*columns, strict=True)
        return [replace(first, sheets=tuple(sheets), window=window) for sheets in outs]
    if kinds == {Membrane}:
        return [next(f for f in facts if isinstance(f, Membrane))] * len(node.outputs)
    raise Unfollowed("joins tensors of different kinds")


def _ids_through(g: Graph, node: Node, ids: list[Tensor | None]) -> list[Tensor | None]:
    if all(i is None for i in ids):
        return [None] * len(node.outputs)
    known = {
        v: torch.zeros(g.values[v].shape, dtype=torch.float64) if i is None else i
        for v, i in zip(node.inputs, ids, strict=True)
    }
    return list(call(node, known))


def _sheet_through(g: Graph, node: Node, sheets: list[Sheet | None]) -> list[Sheet]:
    known = [s for s in sheets if s is not None]
    if any(s.norms != known[0].norms or s.constant != known[0].constant for s in known) and node.op not in (
        "cat",
        "stack",
    ):
        raise Unfollowed("joins currents that were normalised differently")
    ids = _ids_through(g, node, [s.ids if s is not None else None for s in sheets])
    names = frozenset().union(*(s.projections for s in known))
    norms = tuple(dict.fromkeys(n for s in known for n in s.norms))
    return [replace(known[0], ids=cast(Tensor, i), projections=names, norms=norms) for i in ids]


def reduce_ids(ids: Tensor, dims: list[int], keepdim: bool, exact: bool) -> Tensor:
    low = ids.amin(dims, keepdim=keepdim)
    if exact:
        channel = ids % TIME
        if not torch.equal(channel.amin(dims), channel.amax(dims)):
            raise Unfollowed("mixes channels")
    return low


def crosses_time(ids: Tensor | None, dims: list[int]) -> bool:
    """Whether elements of different time steps are joined along `dims`."""
    if ids is None or not dims:
        return False
    step = (ids / TIME).floor()
    return not torch.equal(step.amin(dims), step.amax(dims))


def average(fact: Fact, op: str, n: float, summed: float, through: Callable[[Tensor, bool], Tensor]) -> Fact:
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
        return replace(fact, sheets=sheets, factor=fact.factor * weight, window=fact.window * n)
    if isinstance(fact, Membrane):
        return fact
    raise Unfollowed("averages something that is neither spikes nor currents")


def follow_mean(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    shape = g.values[node.inputs[0]].shape
    dims = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], (list, tuple)) else None
    axes = [d % len(shape) for d in dims] if dims else list(range(len(shape)))
    keepdim = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    n = prod(shape[d] for d in axes)
    fact = facts[0]
    out = average(fact, node.op, n, node.op == "sum", lambda i, exact: reduce_ids(i, axes, keepdim, exact))
    ids = fact.ids if isinstance(fact, Count) else fact.sheets[0].ids if isinstance(fact, Current) else None
    if isinstance(out, (Count, Current)) and node.op == "mean" and crosses_time(ids, axes):
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
    return [average(facts[0], node.op, prod(kernel), False, lambda i, _: pool(i, kernel, step, pad))]


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
    return [average(facts[0], node.op, n, False, lambda i, _: cast(Tensor, pool(i, outs)))]


def follow_max(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    fact = facts[0]
    if isinstance(fact, Count):
        ids = call(node, {node.inputs[0]: fact.ids})[0] if fact.ids is not None else None
        return [replace(fact, ids=ids)]
    if isinstance(fact, Current):
        sheets = []
        for s in fact.sheets:
            ids = call(node, {node.inputs[0]: s.ids})[0]
            if not torch.equal(ids, -call(node, {node.inputs[0]: -s.ids})[0]):
                raise Unfollowed("takes a maximum over several channels")
            sheets.append(replace(s, ids=ids, ops=(*s.ops, "max_pool")))
        return [replace(fact, sheets=tuple(sheets))]
    raise Unfollowed("takes a maximum of something that is neither spikes nor currents")


def follow_bilinear(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    before, after = g.values[node.inputs[0]].shape[-2:], g.values[node.outputs[0]].shape[-2:]
    align = node.args[2] if len(node.args) > 2 else node.kwargs.get("align_corners", False)
    if align or tuple(2 * b for b in before) != tuple(after):
        raise Unfollowed("resizes bilinearly by another ratio than 2 without aligned corners")
    return [average(facts[0], "bilinear", 16, False, lambda i, _: F.interpolate(i, size=after))]


def scale(fact: Fact, c: float, op: str) -> Fact:
    if isinstance(fact, Count):
        return fact.scaled(c)
    if isinstance(fact, Current) and c > 0:
        sheets = tuple(replace(s, ops=(*s.ops, op), constant=s.constant * c) for s in fact.sheets)
        return replace(fact, sheets=sheets, factor=fact.factor * c)
    if isinstance(fact, Membrane):
        return fact
    raise Unfollowed(f"multiplies currents by {c:g}")


def operands(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """The two operands; literals become Constants."""
    by_value = dict(zip(node.inputs, facts, strict=True))
    out: list[Fact] = []
    for a in node.args[:2]:
        out.append(by_value[a.value] if isinstance(a, Ref) else Constant(float(a)))
    return out


def follow_add(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(g, node, facts)
    alpha = float(node.kwargs.get("alpha", 1))
    if node.op == "sub":
        alpha = -alpha
    if node.op == "rsub":
        a, b, alpha = b, a, -alpha
    if alpha != 1:
        b = Constant(None if b.value is None else alpha * b.value) if isinstance(b, Constant) else scale(
            b, alpha, node.op
        )
    if isinstance(a, Constant):
        a, b = b, a
    shape = g.values[node.outputs[0]].shape
    if isinstance(b, Constant):
        return [_add_constant(a, b, shape)]
    if isinstance(a, Count) and isinstance(b, Count):
        f = common_factor(a.factor, b.factor)
        ra, rb = a.factor / f, b.factor / f
        ids = a.ids if a.ids is not None else b.ids
        ids = ids.expand(shape) if ids is not None else None
        lo, hi = ra * a.lo + rb * b.lo, ra * a.hi + rb * b.hi
        return [Count(f, lo, hi, a.sources | b.sources, ids, a.over_time or b.over_time)]
    if isinstance(a, Current) and isinstance(b, Current):
        f = common_factor(a.factor, b.factor)
        sheets = tuple(
            replace(s, ids=s.ids.expand(shape), ops=(*s.ops, "add")) for s in (*a.sheets, *b.sheets)
        )
        window = a.window * a.factor / f + b.window * b.factor / f
        return [Current(sheets, f, window, a.over_time or b.over_time)]
    if isinstance(a, Membrane) and isinstance(b, Membrane):
        return [a]
    raise Unfollowed("adds spikes, currents or states to something of another kind")


def _add_constant(a: Fact, b: Constant, shape: tuple[int, ...]) -> Fact:
    if b.value == 0:
        return a
    if isinstance(a, Count) and b.value is not None:
        steps = b.value / a.factor
        if abs(steps - round(steps)) < 1e-9:
            return replace(a, lo=a.lo + round(steps), hi=a.hi + round(steps))
    raise Unfollowed("adds a constant")


def follow_mul(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(g, node, facts)
    if isinstance(a, Constant):
        a, b = b, a
    shape = g.values[node.outputs[0]].shape
    if isinstance(b, Constant):
        if b.value is None or b.value == 0:
            raise Unfollowed("multiplies by a tensor of constants")
        return [scale(a, 1 / b.value if node.op == "div" else b.value, node.op)]
    if node.op == "div":
        raise Unfollowed("divides by a tensor")
    if isinstance(a, Count) and isinstance(b, Count):
        return [_product(a, b, 1.0, a.ids if a.ids is not None else b.ids, shape)]
    if isinstance(a, Count):
        a, b = b, a
    if isinstance(a, Current) and isinstance(b, Count) and b.lo >= 0:
        sheets = tuple(replace(s, ids=s.ids.expand(shape), ops=(*s.ops, "mul")) for s in a.sheets)
        return [Current(sheets, a.factor * b.factor, a.window * b.hi, a.over_time or b.over_time)]
    raise Unfollowed("multiplies things of another kind")


def _product(a: Count, b: Count, n: float, ids: Tensor | None, shape: tuple[int, ...]) -> Count:
    corners = [x * y * n for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lo, hi = min(*corners, 0.0), max(corners)
    expanded = ids.expand(shape) if ids is not None else None
    return Count(a.factor * b.factor, lo, hi, a.sources | b.sources, expanded, a.over_time or b.over_time)


def follow_matmul(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = facts[0], facts[-1]
    if not (isinstance(a, Count) and isinstance(b, Count)):
        raise Unfollowed("multiplies matrices that are not both made of spikes")
    n = g.values[node.inputs[0]].shape[-1]
    shape = g.values[node.outputs[0]].shape
    ids: Tensor | None = None
    if b.ids is not None and b.ids.dim() > 1 and torch.equal(b.ids, b.ids[..., :1, :].expand_as(b.ids)):
        ids = b.ids[..., :1, :]
    elif a.ids is not None and torch.equal(a.ids, a.ids[..., :1].expand_as(a.ids)):
        ids = a.ids[..., :1]
    return [_product(a, b, n, ids, shape)]


def follow_count(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """Comparisons and maxima of spike counts."""
    counts = [f for f in facts if isinstance(f, Count)]
    if len(counts) + sum(isinstance(f, Constant) for f in facts) != len(facts) or not counts:
        raise Unfollowed("is not defined on currents")
    sources = frozenset().union(*(c.sources for c in counts))
    if node.op in COMPARE:
        return [Count(1.0, 0.0, 1.0, sources, counts[0].ids)]
    factor = counts[0].factor
    if any(c.factor != factor for c in counts) or (node.op == "relu" and counts[0].lo < 0):
        raise Unfollowed("compares counts of different quanta")
    return [Count(factor, min(c.lo for c in counts), max(c.hi for c in counts), sources, counts[0].ids)]


def follow_write_view(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """A value written through a view of a buffer (out[t] = spikes): the buffer now holds both."""
    base, written = facts
    view = cast(Node, node.args[2])
    shape = g.values[node.outputs[0]].shape

    def place(below: Tensor | None, ids: Tensor) -> Tensor:
        buffer = torch.zeros(shape, dtype=torch.float64) if below is None else below.clone()
        call(view, {view.inputs[0]: buffer})[0].copy_(ids)
        return buffer

    if isinstance(written, Count):
        known = base if isinstance(base, Count) else Count(written.factor, 0.0, 0.0, frozenset())
        ids = place(known.ids, written.ids) if written.ids is not None else None
        lo, hi = min(known.lo, written.lo), max(known.hi, written.hi)
        return [Count(written.factor, lo, hi, known.sources | written.sources, ids)]
    if isinstance(written, Current):
        below = base.sheets if isinstance(base, Current) else (None,) * len(written.sheets)
        sheets = tuple(
            replace(s, ids=place(b.ids if b is not None else None, s.ids))
            for s, b in zip(written.sheets, below, strict=True)
        )
        return [replace(written, sheets=sheets)]
    if isinstance(written, Membrane):
        return [written]
    raise Unfollowed("writes into a buffer")


def follow_copy(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    fact = facts[-1]
    shape = g.values[node.outputs[0]].shape
    if isinstance(fact, Count) and fact.ids is not None:
        return [replace(fact, ids=fact.ids.expand(shape))]
    if isinstance(fact, Current):
        return [replace(fact, sheets=tuple(replace(s, ids=s.ids.expand(shape)) for s in fact.sheets))]
    return [fact]


Rule = Callable[[Graph, Node, list[Fact]], list[Fact]]
RULES: dict[str, Rule] = {
    **dict.fromkeys(SHAPE, follow_shape),
    **dict.fromkeys(MAXIMUM, follow_max),
    **dict.fromkeys(MATMUL, follow_matmul),
    **dict.fromkeys([*COMPARE, "maximum", "minimum", "relu", "bitwise_and", "bitwise_or"], follow_count),
    **dict.fromkeys(["mean", "sum"], follow_mean),
    **dict.fromkeys(["avg_pool1d", "avg_pool2d", "avg_pool3d"], follow_avg_pool),
    **dict.fromkeys(["_adaptive_avg_pool2d", "_adaptive_avg_pool3d"], follow_adaptive_pool),
    **dict.fromkeys(["add", "sub", "rsub"], follow_add),
    **dict.fromkeys(["mul", "div"], follow_mul),
    "upsample_bilinear2d": follow_bilinear,
    "write_view": follow_write_view,
    "copy": follow_copy,
}


def apply(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """Facts of the node's outputs."""
    opaque = [f for f in facts if isinstance(f, Opaque)]
    kinds = {type(f) for f in facts}
    if not opaque and kinds <= {Data, Constant}:
        fact: Fact = Data() if Data in kinds else Constant(g.values[node.outputs[0]].data)
        return [fact] * len(node.outputs)
    try:
        if opaque:
            raise Unfollowed(opaque[0].reason)
        if node.op not in RULES:
            raise Unfollowed("has no integer meaning here")
        out = RULES[node.op](g, node, facts)
        return [*out, *[Constant()] * (len(node.outputs) - len(out))]
    except Unfollowed as why:
        where = f" in '{node.scope}'" if node.scope else ""
        reason = opaque[0].reason if opaque else f"{node.op}{where} {why}"
        projections = frozenset().union(
            *(f.projections for f in facts if isinstance(f, (Current, Opaque))), frozenset()
        )
        membranes = frozenset(f.neuron for f in facts if isinstance(f, Membrane)).union(
            *(f.membranes for f in opaque)
        )
        return [Opaque(reason, projections, membranes)] * len(node.outputs)

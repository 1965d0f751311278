"""Operations that add, multiply and compare."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ptq4snn.discovery import calls
from ptq4snn.discovery.facts import RELU, Constant, Count, Current, Fact, Membrane
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.rules.support import Rule, Unfollowed, common_factor, operands, whole
from ptq4snn.discovery.rules.wishing import wished

__all__ = ["RULES"]


def _grown(ids: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    return ids.expand(shape) if ids is not None else None


def scale(fact: Fact, c: float, op: str) -> Fact:
    if isinstance(fact, Count):
        return fact.scaled(c)
    if isinstance(fact, Current) and c > 0:
        sheets = tuple(replace(s, ops=(*s.ops, op), constant=s.constant * c) for s in fact.sheets)
        return replace(fact, sheets=sheets, factor=fact.factor * c, span=fact.span * c)
    if isinstance(fact, Membrane):
        return fact
    if isinstance(fact, Current):
        raise Unfollowed(f"multiplies currents by {c:g}, which is not positive")
    raise Unfollowed("scales something that is neither spikes nor currents")


def follow_add(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    shape = g.values[node.outputs[0]].shape
    if (edited := wished(g, node, operands(node, facts), shape)) is not None:
        return [edited]
    a, b = (_times(f, c, node.op) for f, c in zip(operands(node, facts), calls.addends(node), strict=True))
    if isinstance(a, Constant):
        a, b = b, a
    if isinstance(b, Constant):
        return [_add_constant(a, b, shape)]
    if isinstance(a, Count) and isinstance(b, Count):
        f = common_factor(a.factor, b.factor)
        ra, rb = a.factor / f, b.factor / f
        ids = _grown(a.ids if a.ids is not None else b.ids, shape)
        lo, hi = ra * a.lo + rb * b.lo, ra * a.hi + rb * b.hi
        return [Count(f, lo, hi, a.sources | b.sources, ids, a.over_time or b.over_time)]
    if isinstance(a, Current) and isinstance(b, Current):
        return [_add_currents(a, b, shape)]
    if isinstance(a, Membrane) and isinstance(b, Membrane):
        return [a]
    raise Unfollowed("adds spikes, currents or states to something of another kind")


def _times(fact: Fact, c: float, op: str) -> Fact:
    if c == 1:
        return fact
    if isinstance(fact, Constant):
        return Constant(None if fact.value is None else c * fact.value)
    return scale(fact, c, op)


def _add_currents(a: Current, b: Current, shape: tuple[int, ...]) -> Current:
    f = common_factor(a.factor, b.factor)
    sheets = tuple(replace(s, ids=s.ids.expand(shape), ops=(*s.ops, "add")) for s in (*a.sheets, *b.sheets))
    window = a.window * a.factor / f + b.window * b.factor / f
    return Current(sheets, f, window, 1.0, a.over_time or b.over_time)


def _add_constant(a: Fact, b: Constant, shape: tuple[int, ...]) -> Fact:
    if isinstance(a, Count) and b.value is not None:
        steps = whole(b.value / a.factor)
        if steps is not None:
            return replace(a, lo=a.lo + steps, hi=a.hi + steps, ids=_grown(a.ids, shape))
    if b.value == 0 and isinstance(a, Current):
        return replace(a, sheets=tuple(replace(s, ids=s.ids.expand(shape)) for s in a.sheets))
    if b.value == 0 and isinstance(a, Membrane):
        return a
    if isinstance(a, Current):
        raise Unfollowed("adds a constant that differs from position to position or from step to step")
    raise Unfollowed("adds a constant that is no multiple of the spikes' quantum")


def follow_mul(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(node, facts)
    shape = g.values[node.outputs[0]].shape
    if (edited := wished(g, node, [a, b], shape)) is not None:
        return [edited]
    if node.op == "div" and (not isinstance(b, Constant) or node.given.get("rounding_mode") is not None):
        raise Unfollowed("divides by a tensor or with rounding")
    if isinstance(a, Constant):
        a, b = b, a
    if isinstance(b, Constant):
        if b.value is None or b.value == 0:
            raise Unfollowed("multiplies by a tensor of constants")
        return [_expanded(scale(a, 1 / b.value if node.op == "div" else b.value, node.op), shape)]
    if isinstance(a, Count) and isinstance(b, Count):
        return [_product(a, b, 1.0, a.ids if a.ids is not None else b.ids, shape)]
    if isinstance(a, Count):
        a, b = b, a
    if isinstance(a, Current) and isinstance(b, Count) and b.lo >= 0:
        sheets = tuple(
            replace(s, ids=s.ids.expand(shape), ops=(*s.ops, "mul"), uneven=s.uneven or "mul")
            for s in a.sheets
        )
        span = a.span * b.hi * b.factor
        factor, window, late = a.factor * b.factor, a.window * b.hi, a.over_time or b.over_time
        return [Current(sheets, factor, window, span, late, a.through)]
    raise Unfollowed("multiplies things of another kind")


def _expanded(fact: Fact, shape: tuple[int, ...]) -> Fact:
    if isinstance(fact, Count):
        return replace(fact, ids=_grown(fact.ids, shape))
    if isinstance(fact, Current):
        return replace(fact, sheets=tuple(replace(s, ids=s.ids.expand(shape)) for s in fact.sheets))
    return fact


def _product(a: Count, b: Count, n: float, ids: Tensor | None, shape: tuple[int, ...]) -> Count:
    corners = [x * y * n for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lo, hi = min(*corners, 0.0), max(*corners, 0.0)
    over_time = a.over_time or b.over_time
    return Count(a.factor * b.factor, lo, hi, a.sources | b.sources, _grown(ids, shape), over_time)


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


def follow_compare(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    counts = _only_counts(facts)
    ids = next((c.ids for c in counts if c.ids is not None), None)
    return [Count(1.0, 0.0, 1.0, _sources(counts), _grown(ids, g.values[node.outputs[0]].shape))]


def follow_choice(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """Element-wise maxima and logic of spike counts."""
    counts = _only_counts(facts)
    factor = counts[0].factor
    if any(c.factor != factor for c in counts) or len(counts) < len(facts):
        raise Unfollowed("compares counts of different quanta")
    lo, hi = min(c.lo for c in counts), max(c.hi for c in counts)
    ids = _grown(counts[0].ids, g.values[node.outputs[0]].shape)
    return [Count(factor, lo, hi, _sources(counts), ids, any(c.over_time for c in counts))]


def follow_clip(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """clamp, hardtanh and relu of spike counts, to bounds that are multiples of their quantum; of currents
    what is negative becomes 0, on any scale."""
    if isinstance(facts[0], Current) and calls.bounds(node) == (0.0, None) and facts[0].through is None:
        return [_rectified(facts[0])]
    if not isinstance(facts[0], Count) or len(facts) > 1:
        raise Unfollowed("clips currents")
    count = facts[0]
    lo, hi = count.lo, count.hi
    for bound, lower in zip(calls.bounds(node), (True, False), strict=True):
        if bound is None:
            continue
        steps = whole(bound / count.factor)
        if steps is None:
            raise Unfollowed("clips counts between two multiples of their quantum")
        lo, hi = (max(lo, steps), max(hi, steps)) if lower else (min(lo, steps), min(hi, steps))
    return [replace(count, lo=lo, hi=hi)]


def _rectified(current: Current) -> Current:
    """No constant goes through it: what is folded behind it is not the same in front of it."""
    sheets = (replace(s, ops=(*s.ops, RELU), uneven=s.uneven or RELU) for s in current.sheets)
    return replace(current, sheets=tuple(sheets))


def _only_counts(facts: list[Fact]) -> list[Count]:
    counts = [f for f in facts if isinstance(f, Count)]
    if not counts or len(counts) + sum(isinstance(f, Constant) for f in facts) != len(facts):
        raise Unfollowed("is not defined on currents")
    return counts


def _sources(counts: list[Count]) -> frozenset[str]:
    return frozenset().union(*(c.sources for c in counts))


RULES: dict[str, Rule] = {
    "product": follow_matmul,
    "vector product": follow_matmul,
    "compare": follow_compare,
    "logical": follow_compare,
    "bitwise": follow_choice,
    "choice": follow_choice,
    "clip": follow_clip,
    "add": follow_add,
    "multiply": follow_mul,
}

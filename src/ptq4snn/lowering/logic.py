"""Operations that compare, choose and clip, element by element."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ptq4snn.discovery import calls
from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.alignment import align
from ptq4snn.lowering.operands import complete, joined_kind, number_of, operands, quantum
from ptq4snn.lowering.tracked import Constant, Fact, Refused, Tracked, fraction
from ptq4snn.network.program import Choice, Clip, Multiply

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["RULES"]

TURNED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge", "eq": "eq", "ne": "ne"}


def follow_compare(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = operands(node, facts)
    how = node.op
    if isinstance(a, Constant):
        a, b, how = b, a, TURNED[how]
    shape = w.graph.values[node.outputs[0]].shape
    x = w.builder.whole(w.builder.positive(complete(a)))
    if isinstance(b, Constant):
        bound = fraction(number_of(b)) / quantum(w, x)
        if how in ("eq", "ne") and bound.denominator != 1:
            raise Refused("compares with something between two multiples of the quantum")
        limit = math.ceil(bound) if how in ("ge", "lt") else math.floor(bound)
        return [_binary(w, (x.value,), x.numbers.expand(shape), how, limit)]
    y = w.builder.whole(w.builder.positive(complete(b)))
    if quantum(w, x) != quantum(w, y):
        raise Refused("compares counts of different quanta")
    pair = align(w, x, y, shape)
    return [_binary(w, (pair.a, pair.b), pair.numbers, how, None, pair.shape)]


def _binary(
    w: Lowering, inputs: tuple[int, ...], numbers: Tensor, how: str, constant: int | None,
    storage: tuple[int, int] | None = None,
) -> Tracked:  # fmt: skip
    v = w.builder.of(inputs[0])
    shape = storage or (v.positions, v.channels)
    value = w.builder.add(Choice, inputs, shape, how=how, constant=constant)
    return Tracked(value, numbers, "count", binary=True)


def follow_logic(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """and, or, xor, not: of spikes, or of what is not zero."""
    logical = node.op.startswith("logical")
    spikes = []
    for fact in facts:
        x = w.builder.whole(complete(fact))
        if not x.binary and not logical:
            raise Refused("works on the bits of numbers")
        spikes.append(x if x.binary else _binary(w, (x.value,), x.numbers, "ne", 0))
    name = node.op.split("_")[1]
    if name == "not":
        return [_binary(w, (spikes[0].value,), spikes[0].numbers, "eq", 0)]
    if len(spikes) < 2:
        raise Refused("works on constants")
    both = align(w, spikes[0], spikes[1], w.graph.values[node.outputs[0]].shape)
    if name == "and":
        value = w.builder.add(Multiply, (both.a, both.b), both.shape)
        return [Tracked(value, both.numbers, "count", binary=True)]
    how = {"or": "max", "xor": "ne"}[name]
    return [_binary(w, (both.a, both.b), both.numbers, how, None, both.shape)]


def follow_choice(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    a, b = (w.builder.positive(complete(f)) for f in facts)
    if quantum(w, a) != quantum(w, b):
        raise Refused("compares counts of different quanta")
    x = align(w, a, b, w.graph.values[node.outputs[0]].shape)
    value = w.builder.add(Choice, (x.a, x.b), x.shape, how=node.op[:3], constant=None)
    binary = a.binary and b.binary
    return [replace(a, value=value, numbers=x.numbers, kind=joined_kind(a, b), binary=binary)]


def follow_clip(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    if len(facts) > 1:
        raise Refused("clips to a tensor of bounds")
    x = w.builder.positive(complete(facts[0]))
    low, high = (_limit(w, x, bound) for bound in calls.bounds(node))
    if (low is not None and low > 0) or (high is not None and high < 0):
        x = w.builder.whole(x)  # else the zeros of padding stay zeros
    v = w.builder.of(x.value)
    return [replace(x, value=w.builder.add(Clip, (x.value,), (v.positions, v.channels), low=low, high=high))]


def _limit(w: Lowering, x: Tracked, bound: float | None) -> int | None:
    if bound is None:
        return None
    limit = fraction(bound) / quantum(w, x)
    if limit.denominator != 1:
        raise Refused("clips between two multiples of the quantum")
    return int(limit)


RULES: dict[str, Any] = {
    "compare": follow_compare,
    "logical": follow_logic,
    "bitwise": follow_logic,
    "choice": follow_choice,
    "clip": follow_clip,
}

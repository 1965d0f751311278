"""Operations that move elements: they are run on the numbers, and leave no trace in the program."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.discovery import calls
from ptq4snn.discovery.graph import Node
from ptq4snn.discovery.rules.shaping import JOINS
from ptq4snn.discovery.rules.support import Unfollowed, call
from ptq4snn.lowering.numbering import number
from ptq4snn.lowering.operands import quantum
from ptq4snn.lowering.tracked import (
    UNWRITTEN,
    ZERO,
    Constant,
    Fact,
    Refused,
    Tracked,
    common_factor,
    worth,
)
from ptq4snn.network.index import compact
from ptq4snn.network.program import Choice, Gather

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["RULES"]


def repeat(node: Node, numbers: dict[int, Tensor], view: bool = False) -> list[Tensor]:
    """The node's own operation on other tensors."""
    real = "upsample" in node.op  # not defined on integers
    given = {v: n.double() if real else n for v, n in numbers.items()}
    try:
        kind = next(iter(numbers.values())).dtype
        return [t.to(kind) if real else t for t in call(node, given, view)]
    except Unfollowed as why:
        raise Refused(str(why)) from why


def follow_shape(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    if node.op == "_to_copy":
        return [_converted(w, node, facts[0])]
    found = [f for f in facts if isinstance(f, Tracked)]
    others = {v: f for v, f in zip(node.inputs, facts, strict=True) if isinstance(f, Constant)}
    joined, numbers = common(w, found)
    known = dict(zip([v for v in node.inputs if v not in others], numbers, strict=True))
    for v, constant in others.items():
        indices = w.graph.values[v].indices
        if node.op in JOINS or indices is None:
            known[v] = torch.full(w.graph.values[v].shape, _blank(constant), dtype=numbers[0].dtype)
        else:
            known[v] = indices.cpu()
    return [replace(joined, numbers=n) for n in repeat(node, known)]


def _blank(constant: Constant) -> int:
    if constant.value == 0.0:
        return ZERO
    if constant.empty:
        return UNWRITTEN
    raise Refused("joins tensors with constants that are not zero")


def _converted(w: Lowering, node: Node, fact: Fact) -> Fact:
    """A change of type keeps the numbers."""
    assert isinstance(fact, Tracked)
    before, after = w.graph.values[node.inputs[0]].dtype, w.graph.values[node.outputs[0]].dtype
    if before == after or fact.kind == "data":
        return fact
    if fact.kind in ("potential", "real"):
        raise Refused(f"converts the real numbers of '{fact.name}' to {after}")
    if after == "bool" and not fact.binary:
        v = w.builder.of(fact.value)
        value = w.builder.add(Choice, (fact.value,), (v.positions, v.channels), how="ne", constant=0)
        return Tracked(value, fact.numbers, "count", binary=True)
    if not after.startswith("float") and (fact.factor.denominator != 1 or fact.per_steps):
        raise Refused(f"converts fractions to {after}")
    return fact


def common(w: Lowering, facts: list[Tracked]) -> tuple[Tracked, list[Tensor]]:
    """One value, factor and kind for several tensors, and the numbers of each of them in that value."""
    first = facts[0]
    if all(f == replace(first, numbers=f.numbers, binary=f.binary) for f in facts):
        return replace(first, binary=all(f.binary for f in facts)), [f.numbers for f in facts]
    if any(f.kind in ("potential", "real", "data") or f.summed for f in facts):
        raise Refused("joins tensors of different kinds")
    factor = common_factor([quantum(w, f) for f in facts])
    b = w.builder
    facts = [_in_units(w, f, factor) for f in facts]
    values = list(dict.fromkeys(f.value for f in facts))
    if len({b.of(v).time for v in values}) > 1:
        raise Refused("joins what changes from step to step with what does not")
    kind = "current" if any(f.kind == "current" for f in facts) else "count"
    joined = replace(facts[0], kind=kind, binary=all(f.binary for f in facts))
    if len(values) == 1:
        return joined, [f.numbers for f in facts]
    value, places = _side_by_side(w, values)
    total = b.elements(value)
    numbers = [_renumbered(f.numbers, places[f.value], total) for f in facts]
    return replace(joined, value=value), numbers


def _side_by_side(w: Lowering, values: list[int]) -> tuple[int, dict[int, Tensor]]:
    """One value that holds several, and where the elements of each are in it: channels behind channels where
    the positions are as many, else positions behind positions."""
    b = w.builder
    shapes = [(b.of(v).positions, b.of(v).channels) for v in values]
    starts = torch.tensor([0, *(p * c for p, c in shapes)]).cumsum(0).tolist()
    stored = [torch.arange(p * c).reshape(p, c) + s for (p, c), s in zip(shapes, starts, strict=False)]
    if len({p for p, _ in shapes}) == 1:
        index = torch.cat(stored, 1)
    elif len({c for _, c in shapes}) == 1:
        index = torch.cat(stored, 0)
    else:
        index = torch.cat([x.reshape(1, -1) for x in stored], 1)
    flat = index.reshape(-1)
    place = torch.empty_like(flat)
    place[flat] = torch.arange(len(flat))
    value = b.add(
        Gather,
        tuple(values),
        (index.shape[0], index.shape[1]),
        how="sum",
        width=1,
        index=compact(flat.numpy()),
    )
    return value, {v: place[s : s + p * c] for v, s, (p, c) in zip(values, starts, shapes, strict=False)}


def _in_units(w: Lowering, x: Tracked, factor: Fraction) -> Tracked:
    times = int(quantum(w, x) / factor)
    value = w.builder.scaled(x.value, times)
    binary = x.binary and times == 1
    return replace(x, value=value, factor=factor, per_steps=0, scalings=worth(factor), binary=binary)


def _renumbered(numbers: Tensor, place: Tensor, total: int) -> Tensor:
    element = torch.where(numbers < 0, numbers, place[numbers % len(place)].to(numbers.dtype))
    return number(numbers // len(place), element, total)


def follow_pad(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    x, (pads, value) = cast(Tracked, facts[0]), calls.padding(node)
    if value != 0 or x.kind in ("potential", "real"):
        raise Refused("pads with something else than zeros")
    return [replace(x, numbers=F.pad(x.numbers, pads, value=ZERO))]


def follow_write_view(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """A value written through views of a buffer (out[t] = spikes): the buffer now holds both."""
    below, written = facts
    views = cast(list[Node], node.given["views"])
    if isinstance(written, Constant):
        raise Refused("writes constants into a buffer")
    if isinstance(below, Constant):
        joined, numbers = written, written.numbers
        blank = _blank(below)
        buffer = torch.full(w.graph.values[node.outputs[0]].shape, blank, dtype=numbers.dtype)
    else:
        joined, (base, numbers) = common(w, [below, written])
        buffer = base.clone(memory_format=torch.contiguous_format)
    part = buffer
    for view in views:
        (part,) = repeat(view, {view.inputs[0]: part}, view=True)
    part.copy_(numbers)
    return [replace(joined, numbers=buffer)]


def follow_copy(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    x = facts[-1]
    if isinstance(x, Constant):
        return [x]
    return [replace(x, numbers=x.numbers.expand(w.graph.values[node.outputs[0]].shape))]


RULES: dict[str, Any] = {
    "shape": follow_shape,
    "pad": follow_pad,
    "write": follow_write_view,
    "copy": follow_copy,
}

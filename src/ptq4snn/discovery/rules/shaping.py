"""Operations that move elements: reshapes, joins, padding, writes into buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from ptq4snn.discovery import calls
from ptq4snn.discovery.facts import TIME, Constant, Count, Current, Fact, Membrane, Sheet
from ptq4snn.discovery.graph import Graph, Node
from ptq4snn.discovery.rules.support import Rule, Unfollowed, call, common_factor, through, whole

__all__ = ["RULES", "padded"]

JOINS = ("cat", "stack")
NOWHERE = -1.0  # number of an element that belongs to no channel


def follow_shape(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    kinds = {type(f) for f in facts} - {Constant}
    if kinds == {Count}:
        return _shape_counts(g, node, facts)
    if kinds == {Current}:
        return _shape_currents(g, node, facts)
    if kinds == {Membrane}:
        return [next(f for f in facts if isinstance(f, Membrane))] * len(node.outputs)
    raise Unfollowed("joins tensors of different kinds")


def _shape_counts(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    counts = [f for f in facts if isinstance(f, Count)]
    joined = counts[0]
    for c in counts[1:]:
        joined = join_counts(joined, c)
    if node.op in JOINS:
        for f in facts:
            if isinstance(f, Constant):
                joined = join_counts(joined, _constant_count(f, joined.factor))
    ids = through(g, node, [f.ids if isinstance(f, Count) else None for f in facts])
    return [replace(joined, ids=i) for i in ids]


def join_counts(a: Count, b: Count) -> Count:
    """Elements of both side by side, numbered like `a`."""
    f = common_factor(a.factor, b.factor)
    ra, rb = a.factor / f, b.factor / f
    lo, hi = min(a.lo * ra, b.lo * rb), max(a.hi * ra, b.hi * rb)
    return Count(f, lo, hi, a.sources | b.sources, a.ids, a.over_time or b.over_time)


def _constant_count(c: Constant, factor: float) -> Count:
    steps = whole(c.value / factor) if c.value is not None else None
    if steps is None:
        raise Unfollowed("joins spikes with constants that are no multiple of their quantum")
    return Count(factor, steps, steps, frozenset())


def _shape_currents(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    if node.op in JOINS and any(isinstance(f, Constant) for f in facts):
        raise Unfollowed("joins currents with constants")
    currents = [f for f in facts if isinstance(f, Current)]
    first = currents[0]
    if any(len(c.sheets) != len(first.sheets) or c.factor != first.factor for c in currents):
        raise Unfollowed("joins currents that were summed in different ways")
    columns = []
    for i in range(len(first.sheets)):
        sheets = [f.sheets[i] if isinstance(f, Current) else None for f in facts]
        ids = through(g, node, [s.ids if s is not None else None for s in sheets])
        joined = join_sheets([s for s in sheets if s is not None])
        columns.append([replace(joined, ids=cast(Tensor, i)) for i in ids])
    window, span = max(c.window for c in currents), max(c.span for c in currents)
    over_time = any(c.over_time for c in currents)
    outs = zip(*columns, strict=True)
    return [Current(tuple(sheets), first.factor, window, span, over_time) for sheets in outs]


def join_sheets(sheets: list[Sheet]) -> Sheet:
    """Elements of all of them side by side, numbered like the first."""
    first = sheets[0]
    if any(s.constant != first.constant for s in sheets):
        raise Unfollowed("joins currents that were averaged differently")
    return Sheet(
        ids=first.ids,
        projections=frozenset().union(*(s.projections for s in sheets)),
        norms=tuple(dict.fromkeys(n for s in sheets for n in s.norms)),
        ops=tuple(dict.fromkeys(o for s in sheets for o in s.ops)),
        constant=first.constant,
        uneven=next((s.uneven for s in sheets if s.uneven), None),
    )


def follow_pad(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    fact, (pads, value) = facts[0], calls.padding(node)
    if isinstance(fact, Count):
        joined = join_counts(fact, _constant_count(Constant(value), fact.factor))
        return [replace(joined, ids=padded(fact.ids, pads, channels=True) if fact.ids is not None else None)]
    if isinstance(fact, Current) and value == 0:
        sheets = []
        for s in fact.sheets:
            ids = padded(s.ids, pads)
            sheets.append(replace(s, ids=ids, ops=(*s.ops, "pad"), uneven=s.uneven or "pad"))
        return [replace(fact, sheets=tuple(sheets))]
    raise Unfollowed("pads with something else than zeros")


def padded(ids: Tensor, pads: list[int], channels: bool = False) -> Tensor:
    """Numbers of a padded tensor: those of the border go on, which is right where channels are not padded.
    `channels`: these may be, and have numbers of no channel that there is."""
    for i in range(len(pads) // 2):
        axis = ids.dim() - 1 - i
        before, after = pads[2 * i], pads[2 * i + 1]
        if not (before or after):
            continue
        if not torch.equal(ids, ids.select(axis, 0).unsqueeze(axis).expand_as(ids)):
            if not channels:
                raise Unfollowed("pads channels or time steps")
            ids = _more_channels(ids, axis, before, after)
            continue
        index = torch.arange(-before, ids.shape[axis] + after).clamp(0, ids.shape[axis] - 1)
        ids = ids.index_select(axis, index)
    return ids


def _more_channels(ids: Tensor, axis: int, before: int, after: int) -> Tensor:
    """The numbers with some in front of and some behind those of an axis of channels."""
    step = (ids / TIME).floor()
    first = step.narrow(axis, 0, 1)
    if not torch.equal(step, first.expand_as(step)):
        raise Unfollowed("pads time steps")
    numbers = TIME - 1 - torch.arange(before + after, dtype=ids.dtype)  # from the end: no channel has them
    numbers = numbers.reshape([-1 if d == axis else 1 for d in range(ids.dim())])
    fresh = TIME * first + numbers
    return torch.cat([fresh.narrow(axis, 0, before), ids, fresh.narrow(axis, before, after)], axis)


def follow_write_view(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    """A value written through views of a buffer (out[t] = spikes): the buffer now holds both."""
    base, written = facts
    views = cast(list[Node], node.given["views"])
    shape = g.values[node.outputs[0]].shape

    def place(below: Tensor | None, ids: Tensor) -> Tensor:
        buffer = torch.full(shape, NOWHERE, dtype=torch.float64) if below is None else below.clone()
        part = buffer
        for view in views:
            (part,) = call(view, {view.inputs[0]: part}, view=True)
        part.copy_(ids)
        return buffer

    if isinstance(written, Count) and isinstance(base, (Count, Constant)):
        value = base if isinstance(base, Constant) else None
        known = base if isinstance(base, Count) else None
        if known is None and value is not None and value.value is not None:  # None: an empty buffer
            known = _constant_count(value, written.factor)
        ids = (
            place(known.ids if known is not None else None, written.ids) if written.ids is not None else None
        )
        joined = join_counts(written, known) if known is not None else written
        return [replace(joined, ids=ids)]
    if isinstance(written, Current):
        return [_write_current(base, written, place)]
    if isinstance(written, Membrane):
        return [written]
    raise Unfollowed("writes into a buffer of another kind")


def _write_current(base: Fact, written: Current, place: object) -> Current:
    empty = isinstance(base, Constant) and base.value in (None, 0.0)
    fits = (
        isinstance(base, Current)
        and base.factor == written.factor
        and len(base.sheets) == len(written.sheets)
    )
    if not (empty or fits):
        raise Unfollowed("writes currents into a buffer that holds something else")
    sheets = []
    for i, s in enumerate(written.sheets):
        below = base.sheets[i] if isinstance(base, Current) else None
        joined = join_sheets([s, below]) if below is not None else s
        sheets.append(replace(joined, ids=place(below.ids if below is not None else None, s.ids)))  # type: ignore[operator]
    if isinstance(base, Current):
        window, span = max(base.window, written.window), max(base.span, written.span)
        return replace(written, sheets=tuple(sheets), window=window, span=span)
    return replace(written, sheets=tuple(sheets))


def follow_copy(g: Graph, node: Node, facts: list[Fact]) -> list[Fact]:
    fact = facts[-1]
    shape = g.values[node.outputs[0]].shape
    if isinstance(fact, Count) and fact.ids is not None:
        return [replace(fact, ids=fact.ids.expand(shape))]
    if isinstance(fact, Current):
        return [replace(fact, sheets=tuple(replace(s, ids=s.ids.expand(shape)) for s in fact.sheets))]
    return [fact]


RULES: dict[str, Rule] = {
    "shape": follow_shape,
    "pad": follow_pad,
    "write": follow_write_view,
    "copy": follow_copy,
}

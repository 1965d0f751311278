"""Additions and products that integers can follow once an operand goes through a module of its own.

spikes + current      the spikes through a projection with weights of one
current * p, + p      a scale or a constant for each channel: a norm, folded into the projection
current + p           a constant for each position: a bias of the projection for each
spikes * p            a factor for each channel: in the weights that read them
"""

from __future__ import annotations

import torch

from ptq4snn.discovery import calls
from ptq4snn.discovery.channel_layout import layout_of
from ptq4snn.discovery.facts import TIME, Constant, Count, Current, Fact
from ptq4snn.discovery.graph import Graph, Node, Ref, Wish

__all__ = ["wished"]


def wished(g: Graph, node: Node, pair: list[Fact], shape: tuple[int, ...]) -> Fact | None:
    """Note what has to be edited, and go on with the current as if it were done; None where nothing has to
    be or can be."""
    if g.wishes is None or node.site is None or any(isinstance(f, Constant) and f.drawn for f in pair):
        return None
    if not any(isinstance(f, Current) and f.through is None for f in pair):
        return _spike_scale(g, node, pair, shape)
    at = next(i for i, f in enumerate(pair) if isinstance(f, Current))
    current, other = pair[at], pair[1 - at]
    assert isinstance(current, Current)
    if isinstance(other, Count):
        return _shortcut(g, node, current, other, at, shape)
    if isinstance(other, Constant) and not _plain(node, at, other):
        return _affine(g, node, current, other, at, shape)
    return None


def _spike_scale(g: Graph, node: Node, pair: list[Fact], shape: tuple[int, ...]) -> Fact | None:
    """Spikes times a tensor of constants, as large as they are."""
    at = next((i for i, f in enumerate(pair) if isinstance(f, Count)), 0)
    spikes, other = pair[at], pair[1 - at]
    product = node.op == "mul" or (node.op == "div" and not at and node.given.get("rounding_mode") is None)
    if (
        not product
        or not isinstance(spikes, Count)
        or not isinstance(other, Constant)
        or other.value is not None
    ):
        return None
    operand = node.given[("self", "other")[at]]
    if not isinstance(operand, Ref) or g.values[operand.value].shape != shape:
        return None
    assert g.wishes is not None
    g.wishes.append(Wish("scale", node, at, (1,), -1, (spikes.sources, other.learned)))
    return spikes


def _shortcut(
    g: Graph, node: Node, current: Current, spikes: Count, at: int, shape: tuple[int, ...]
) -> Fact | None:
    alike = node.op == "add" and calls.addends(node) == (1.0, 1.0)
    axis = _axis(current, shape)
    if not alike or axis is None or any(g.values[v].shape != shape for v in node.inputs):
        return None
    key = (current.projections, spikes.sources, spikes.factor)
    assert g.wishes is not None
    g.wishes.append(Wish("shortcut", node, 1 - at, (shape[axis],), axis, key))
    return current


def _affine(
    g: Graph, node: Node, current: Current, other: Constant, at: int, shape: tuple[int, ...]
) -> Fact | None:
    axis = _axis(current, shape)
    if axis is None or (node.op == "div" and (at or node.given.get("rounding_mode") is not None)):
        return None
    operand = node.given[("self", "other")[1 - at]]
    size = g.values[operand.value].shape if isinstance(operand, Ref) else ()
    assert g.wishes is not None
    if any(n > 1 and d - len(size) != axis for d, n in enumerate(size)):  # it differs from place to place
        return _position(g, node, current, other, at)
    g.wishes.append(Wish("affine", node, at, (shape[axis],), axis, (current.projections, other.learned)))
    return current


def _position(g: Graph, node: Node, current: Current, other: Constant, at: int) -> Fact | None:
    """A position embedding, which becomes a bias of the projection that alone makes the current."""
    added = node.op in ("add", "sub", "rsub") and calls.addends(node)[at] == 1.0
    if not added or len(current.sheets) > 1:
        return None
    assert g.wishes is not None
    g.wishes.append(Wish("position", node, at, (1,), -1, (current.projections, other.learned)))
    return current


def _plain(node: Node, at: int, other: Constant) -> bool:
    """What needs no edit: a positive factor, or nothing added."""
    if other.value is None:
        return False
    if node.op in ("mul", "div"):
        return other.value > 0 and (at == 0 or node.op == "mul")
    signs = calls.addends(node)
    return other.value == 0 and signs[at] > 0


def _axis(current: Current, shape: tuple[int, ...]) -> int | None:
    """The axis, from the end, along which a current has the channels of a projection in order."""
    axes = set()
    for sheet in current.sheets:
        if tuple(sheet.ids.shape) != shape or len(sheet.projections) > 1:
            return None
        ids = sheet.ids % TIME
        layout = layout_of(ids)
        if len(layout.dims) != 1:
            return None
        (axis,) = layout.dims
        line = ids.movedim(axis, -1).reshape(-1, shape[axis])[0]
        if not torch.equal(line, line[0] + torch.arange(len(line), dtype=line.dtype)):
            return None
        axes.add(axis - len(shape))
    return axes.pop() if len(axes) == 1 else None

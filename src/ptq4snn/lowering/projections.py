"""Projections and mirrors."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.alignment import same
from ptq4snn.lowering.delays import is_rest, step_before
from ptq4snn.lowering.numbering import Split, number, unique_rows
from ptq4snn.lowering.operands import complete, first_argument, times, tracked
from ptq4snn.lowering.tracked import INPUT, Fact, Refused, Tracked
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.network.index import Window
from ptq4snn.network.program import Affine, Project

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["lower_mirror", "lower_projection"]


def lower_projection(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    module = w.modules[node.target]
    assert isinstance(module, QuantProjection)
    fact = w.facts[first_argument(node)]
    goes_round = node.target in w.loops or is_rest(fact)
    x = step_before(w, node, fact) if goes_round else tracked(fact)
    if x.summed is not None:
        raise Refused("reads a sum of some of the time steps only")
    if (x.kind == "data") != (module.quantizer is not None):
        raise Refused("reads the input together with something else")
    inner: Any = module.inner
    read = _read_rows if isinstance(inner, nn.Linear) else _read_images
    value, s, place, window = read(w, x, inner, node.target)
    if x.kind != "data":
        value = w.builder.scaled(value, times(w, x, module.plan))
    _check_places(w, module.plan.places, value, place, window)
    out, sizes = int(inner.weight.shape[0]), window.out_size if window is not None else ()
    positions = prod(sizes) if window is not None else w.builder.of(value).positions
    groups = int(getattr(inner, "groups", 1))
    made = w.builder.add(Project, (value,), (positions, out), node.target, window=window, groups=groups)
    shape = w.graph.values[node.outputs[0]].shape
    channels = torch.arange(out).reshape(-1, *[1] * len(sizes))
    place = place.unsqueeze(-1) if window is None else place.reshape(sizes)
    element = place * out + channels
    numbers = number(s.sample, element, positions * out).expand(shape)
    kind, name = ("real", node.target) if module.plan.decode else ("current", None)
    return [Tracked(made, numbers, kind, name)]


def _check_places(
    w: Lowering, places: tuple[int, ...], value: int, place: Tensor, window: Window | None
) -> None:
    """Positions that have biases of their own must be stored in their order, each once."""
    if not places:
        return
    count = prod(window.out_size) if window is not None else w.builder.of(value).positions
    own = place if window is not None else place.reshape(-1, *places)[0] if place.numel() else place
    fits = count == prod(places) and torch.equal(own.reshape(-1), torch.arange(count))
    if not fits or (window is None and not torch.equal(place, own.expand_as(place))):
        raise Refused("adds constants to positions that are not stored in their order")


def _read_rows(w: Lowering, x: Tracked, inner: Any, name: str) -> tuple[int, Split, Tensor, None]:
    """A Linear's input: its value, where time and samples lie, and the position of every row."""
    s = w.builder.split(x)
    if s.varies(-1):
        raise Refused("reads features of several samples or time steps at once")
    rows = s.element.expand(*s.element.shape[:-1], s.shape[-1])
    lead, rows = rows.shape[:-1], rows.reshape(-1, s.shape[-1])
    channels = w.builder.of(x.value).channels
    start = rows[:, :1]
    stored = torch.equal(rows, start + torch.arange(rows.shape[1])) and not bool((start % channels).any())
    if x.value != INPUT and channels == rows.shape[1] and stored:  # positions as they are
        return x.value, s, start.reshape(lead) // channels, None
    rows, place = unique_rows(rows)
    value = w.builder.gather(x.value, rows.reshape(-1), (len(rows), rows.shape[1]), name)
    return value, s, place.reshape(lead), None


def _read_images(w: Lowering, x: Tracked, inner: Any, name: str) -> tuple[int, Split, Tensor, Window]:
    """A convolution's input, and the positions of its output."""
    if inner.padding_mode != "zeros":
        raise Refused(f"pads with '{inner.padding_mode}'; only zeros can be padded")
    rank = inner.weight.dim() - 2
    s = w.builder.split(x)
    own = range(len(s.shape) - rank - 1, len(s.shape))
    if any(s.varies(d) for d in own) or any(n > 1 for n in s.element.shape[: own[0]]):
        raise Refused("convolves several images of a sample, or time and samples on one axis")
    image = s.element.reshape(s.element.shape[own[0] :]).expand(s.shape[own[0] :])  # [Cin, *size]
    before, after = _padding(inner, rank)
    if x.value != INPUT:
        image, more = _without_border(image)
        before = tuple(b + m for b, (m, _) in zip(before, more, strict=True))
        after = tuple(a + m for a, (_, m) in zip(after, more, strict=True))
    size = tuple(image.shape[1:])
    window = Window(
        size, tuple(inner.weight.shape[2:]), tuple(inner.stride), before, after, tuple(inner.dilation)
    )
    index = image.movedim(0, -1).reshape(-1)
    value = w.builder.gather(x.value, index, (prod(size), image.shape[0]), name)
    return value, s, torch.arange(prod(window.out_size)), window


def _padding(inner: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding in front of and behind every axis."""
    if not isinstance(inner.padding, str):
        return tuple(inner.padding), tuple(inner.padding)
    if inner.padding == "valid":
        return (0,) * rank, (0,) * rank
    total = [d * (k - 1) for k, d in zip(inner.weight.shape[2:], inner.dilation, strict=True)]
    return tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)


def _without_border(image: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """An image [C, *size] without the zeros around it, and how many of them there were on every axis."""
    stored = image >= 0
    more = []
    for d in range(1, image.dim()):
        others = tuple(i for i in range(image.dim()) if i != d)
        inside = stored.any(dim=others).nonzero().flatten().tolist() if not bool(stored.all()) else []
        first, last = (inside[0], inside[-1]) if inside else (0, image.shape[d] - 1)
        more.append((first, image.shape[d] - 1 - last))
    if not any(a or b for a, b in more):
        return image, more
    for d, (a, b) in enumerate(more, 1):
        image = image.narrow(d, a, image.shape[d] - a - b)
    return image, more


def lower_mirror(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """sign * x + shift for each channel."""
    x = w.builder.whole(complete(facts[0]))
    axis = w.plan.mirrors[node.target].axis % x.numbers.dim()
    if x.factor != 1 or x.per_steps:
        raise Refused("shifts numbers of another unit than its projection's")
    v, s = w.builder.of(x.value), w.builder.split(x)
    numbers = torch.arange(s.shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(s.shape))])
    if v.channels != s.shape[axis] or not same(s.element % v.channels, numbers):
        positions = tuple(d for d in range(len(s.shape)) if d != axis and not s.varies(d))
        x = w.builder.arrange(x, (positions, (axis,)))
        v = w.builder.of(x.value)
    value = w.builder.add(Affine, (x.value,), (v.positions, v.channels), node.target)
    return [replace(x, value=value, binary=False)]

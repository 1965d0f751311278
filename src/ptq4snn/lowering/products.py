"""Products of matrices of spikes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.alignment import same, same_samples
from ptq4snn.lowering.numbering import number, unique_rows
from ptq4snn.lowering.operands import complete, joined_kind
from ptq4snn.lowering.tracked import Fact, Refused, Tracked, worth
from ptq4snn.network.program import MatMul

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["RULES"]


def follow_matmul(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """Products of matrices [.., n, k] and [.., k, m] of one step of one sample."""
    a, b = (w.builder.whole(complete(f)) for f in facts)
    if a.numbers.dim() != b.numbers.dim() or a.numbers.dim() < 2:
        raise Refused("multiplies a matrix by a vector")
    left, groups = _matrices(w, a)
    right, others = _matrices(w, b)
    if left.numbers.shape[:-2] != right.numbers.shape[:-2] or not same(groups[1], others[1]):
        raise Refused("multiplies matrices of different steps, samples or heads")
    rows, columns, count = a.numbers.shape[-2], b.numbers.shape[-1], groups[0]
    sample = same_samples(w, a, b, w.builder.split(left), w.builder.split(right))
    value = w.builder.add(MatMul, (left.value, right.value), (count * rows, columns), groups=count)
    place = groups[1].reshape(*groups[1].shape, 1, 1) * rows + torch.arange(rows).reshape(-1, 1)
    element = place * columns + torch.arange(columns)
    shape = w.graph.values[node.outputs[0]].shape
    numbers = number(sample, element, count * rows * columns).expand(shape)
    factor, per_steps = a.factor * b.factor, a.per_steps + b.per_steps
    kind, scalings = joined_kind(a, b), worth(factor, per_steps)
    return [Tracked(value, numbers, kind, None, factor, per_steps, scalings)]


def _matrices(w: Lowering, x: Tracked) -> tuple[Tracked, tuple[int, Tensor]]:
    """x with one matrix behind the other in storage: their number, and which one each of the tensor is."""
    s = w.builder.split(x)
    if s.varies(-1) or s.varies(-2):
        raise Refused("multiplies matrices that hold several steps or samples")
    lead = s.element.shape[:-2]
    matrices = s.element.expand(*lead, *s.shape[-2:]).reshape(-1, s.shape[-2] * s.shape[-1])
    found, which = unique_rows(matrices)
    shape = (len(found) * s.shape[-2], s.shape[-1])
    value = w.builder.gather(x.value, found.reshape(-1), shape)
    inside = torch.arange(matrices.shape[1]).reshape(s.shape[-2:])
    element = which.reshape(*lead, 1, 1) * matrices.shape[1] + inside
    numbers = number(s.sample, element, found.numel()).expand(s.shape)
    return replace(x, value=value, numbers=numbers), (len(found), which.reshape(lead))


RULES: dict[str, Any] = {"product": follow_matmul}

"""What goes round from step to step: spikes of the step before, through a delay.

The recorded pass is unrolled: at its first step zeros stand in their place, at step t the spikes that step
t - 1 made. One delay of the program is all of that. Where its input will come from is not known at the first
step: the delay is stored [positions, channels] of the tensor that it gives, and what it reads is brought to
that order when it is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.discovery.graph import Node
from ptq4snn.lowering.numbering import number
from ptq4snn.lowering.operands import complete, first_argument
from ptq4snn.lowering.tracked import Constant, Fact, Refused, Tracked
from ptq4snn.network.program import Delay, Value

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["Loop", "close_loops", "is_rest", "lower_before", "step_before"]


@dataclass
class Loop:
    """A delay while it is found: the operation at `place`, its value, and its steps so far."""

    place: int
    value: int
    element: Tensor  # [*shape of a sample]: storage element
    steps: int = 0
    source: int | None = None


def is_rest(fact: Fact) -> bool:
    """Zeros: what stands there before the first step."""
    return isinstance(fact, Constant) and fact.value == 0


def lower_before(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """The module that says so."""
    return [step_before(w, node, facts[0])]


def step_before(w: Lowering, node: Node, fact: Fact) -> Tracked:
    """What `node` reads of the step before."""
    shape, b = w.graph.values[first_argument(node)].shape, w.builder
    if node.target not in w.loops:
        if not is_rest(fact):
            raise Refused("does not begin with zeros; let what goes round start from zeros")
        w.loops[node.target] = _open(w, node, shape)
    loop = w.loops[node.target]
    if loop.steps:
        _read(w, loop, complete(fact))
    sample = loop.steps * b.batch + torch.arange(b.batch)
    numbers = number(sample.reshape(-1, *[1] * (len(shape) - 1)), loop.element, loop.element.numel())
    loop.steps += 1
    return Tracked(loop.value, numbers, "count")


def _open(w: Lowering, node: Node, shape: tuple[int, ...]) -> Loop:
    b = w.builder
    if len(shape) < 2 or shape[0] != b.batch:
        raise Refused("goes round in a tensor that does not begin with the samples")
    channels, positions = shape[1], prod(shape[2:])
    place = torch.arange(positions).reshape(shape[2:]) * channels
    element = place + torch.arange(channels).reshape(-1, *[1] * (len(shape) - 2))
    value = b.new_value(Value(positions, channels, True), False)
    b.operations.append(Delay(output=value, inputs=(value,), name=node.target))
    return Loop(len(b.operations) - 1, value, element)


def _read(w: Lowering, loop: Loop, x: Tracked) -> None:
    """Note where the delay's input comes from; it must be the same at every step."""
    b, s = w.builder, w.builder.split(x)
    expected = (loop.steps - 1) * b.batch + torch.arange(b.batch)
    if any(s.varies(d) for d in range(1, len(s.shape))) or s.element.shape[0] > 1:
        raise Refused("goes round with other steps or samples than those of its first axis")
    if not b.of(x.value).time or not torch.equal(s.sample.reshape(-1).expand(b.batch), expected):
        raise Refused("is not what the step before made")
    if x.kind != "count" or x.factor != 1 or x.per_steps:
        raise Refused("goes round as something else than spikes")
    index = torch.empty(loop.element.numel(), dtype=torch.int64)
    index[loop.element.reshape(-1)] = s.element[0].expand(loop.element.shape).reshape(-1)
    v = b.of(loop.value)
    source = b.gather(x.value, index, (v.positions, v.channels))
    if loop.source not in (None, source):
        raise Refused("goes round from different places")
    loop.source = source


def close_loops(w: Lowering) -> None:
    """Give every delay its input."""
    for name, loop in w.loops.items():
        if loop.source is None:
            raise Refused(f"goes round at '{name}' in a single step; give samples of more steps")
        w.builder.operations[loop.place] = replace(w.builder.operations[loop.place], inputs=(loop.source,))

"""Walk the recorded graph once and note what reaches every neuron, projection and output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.facts import TIME, Constant, Count, Current, Data, Fact, Membrane, Norm, Opaque, Sheet
from ptq4snn.discovery.graph import Graph, Node, Ref
from ptq4snn.discovery.layout import Layout, channel_ids, layout_of
from ptq4snn.discovery.rules import apply
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import adapter_of

__all__ = ["NeuronCall", "ProjectionCall", "Walk", "channel_axis", "is_projection", "walk"]

PROJECTIONS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def is_projection(module: nn.Module) -> bool:
    return isinstance(module, PROJECTIONS)


def channel_axis(module: nn.Module) -> int:
    """Axis of the output channels, counted from the end: -1 for Linear, -3 for Conv2d."""
    if isinstance(module, nn.Linear):
        return -1
    return -1 - {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}[next(c for c in PROJECTIONS if isinstance(module, c))]


@dataclass(frozen=True)
class ProjectionCall:
    name: str
    fact: Fact
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]


@dataclass(frozen=True)
class NeuronCall:
    name: str
    fact: Fact
    layout: Layout
    sources: Tensor  # [C]: number of the projection channel (or source neuron channel) of each channel
    steps: int | None  # None: one step of a [B, ...] input
    batch: int


@dataclass
class Walk:
    """Channel c of projection p has the number base[p] + c."""

    base: dict[str, int]
    facts: dict[int, Fact] = field(default_factory=dict)
    projections: list[ProjectionCall] = field(default_factory=list)
    neurons: list[NeuronCall] = field(default_factory=list)
    outputs: list[Fact] = field(default_factory=list)


def walk(graph: Graph, model: nn.Module) -> Walk:
    modules = dict(model.named_modules())
    base, total = {}, 0
    for name, m in modules.items():
        if is_projection(m):
            base[name] = total
            total += int(m.weight.shape[0])  # type: ignore[union-attr, arg-type]
    w = Walk(base)
    for v in graph.values:
        if v.name is not None and v.name != "result":
            w.facts[v.id] = Data() if v.name == "input" else Constant(v.data)
    neuron_base: dict[str, int] = {}
    for node in graph.nodes:
        facts = [w.facts[i] for i in node.inputs]
        if node.kind == "projection":
            out = _projection(w, graph, node, modules[node.target])
        elif node.kind == "norm":
            out = [_norm(node, facts[0])]
        elif node.kind == "neuron":
            out = _neuron(w, graph, node, modules[node.target], neuron_base)
        else:
            out = apply(graph, node, facts)
        for value, fact in zip(node.outputs, out, strict=True):
            w.facts[value] = fact
    w.outputs = [w.facts[v] for v in graph.outputs]
    return w


def _input(node: Node) -> int:
    """The first tensor argument: the projection's input or the neuron's current."""
    for a in (*node.args, *node.kwargs.values()):
        if isinstance(a, Ref):
            return a.value
    raise UnsupportedOperation(f"'{node.target}' was called without a tensor")


def _refuse(what: str, fact: Fact) -> None:
    if isinstance(fact, Opaque):
        raise UnsupportedOperation(
            f"{what} is fed through an operation that integers cannot follow: {fact.reason}; move it behind the "
            f"output, or exclude the layers around it"
        )
    if isinstance(fact, Membrane):
        raise UnsupportedOperation(
            f"{what} reads the membrane potential of '{fact.neuron}'; feed it that neuron's spikes"
        )


def _projection(w: Walk, graph: Graph, node: Node, module: nn.Module) -> list[Fact]:
    value = _input(node)
    fact = w.facts[value]
    _refuse(f"the projection '{node.target}'", fact)
    if isinstance(fact, Current) and len(fact.sheets) > 1:
        raise UnsupportedOperation(
            f"the projection '{node.target}' reads a sum of currents; put a neuron in front of it"
        )
    shape = graph.values[node.outputs[0]].shape
    w.projections.append(ProjectionCall(node.target, fact, graph.values[value].shape, shape))
    axis = channel_axis(module) % len(shape)
    numbers = torch.arange(shape[axis], dtype=torch.float64) + w.base[node.target]
    ids = numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))]).expand(shape)
    ids = ids + TIME * _steps(fact, axis, len(shape))
    return [Current((Sheet(ids, frozenset([node.target])),))]


def _steps(fact: Fact, axis: int, rank: int) -> Tensor:
    """Time step of every position in front of the channel axis, taken from the projection's input."""
    ids = fact.ids if isinstance(fact, Count) else fact.sheets[0].ids if isinstance(fact, Current) else None
    if ids is None:
        return torch.zeros([1] * rank, dtype=torch.float64)
    lead = ids[(..., *[slice(0, 1)] * (rank - axis))] if axis else ids[:1]
    return (lead / TIME).floor()


def _norm(node: Node, fact: Fact) -> Fact:
    if isinstance(fact, (Data, Constant)):
        return Data()
    if isinstance(fact, Current) and len(fact.sheets) == 1:
        (s,) = fact.sheets
        norms = (*s.norms, Norm(node.target, s.constant, "max_pool" in s.ops))
        return replace(fact, sheets=(replace(s, norms=norms),))
    if isinstance(fact, Opaque):
        return fact
    what = "a sum of projections" if isinstance(fact, Current) else "spikes"
    projections = fact.projections if isinstance(fact, Current) else frozenset()
    return Opaque(f"the BatchNorm '{node.target}' normalises {what} and cannot be folded", projections)


def _neuron(
    w: Walk, graph: Graph, node: Node, module: nn.Module, neuron_base: dict[str, int]
) -> list[Fact]:
    value = _input(node)
    fact, shape = w.facts[value], graph.values[value].shape
    what = f"the neuron '{node.target}'"
    _refuse(what, fact)
    if isinstance(fact, (Data, Constant)):
        raise UnsupportedOperation(
            f"{what} is fed by the input itself and by nothing quantizable; put a convolution or linear layer "
            f"in front of it, or leave it out of the model and feed its spikes"
        )
    adapter = adapter_of(module)
    assert adapter is not None
    steps = adapter.steps(module, torch.empty(shape, device="meta"))
    lead = 1 if steps is None else 2  # axes in front of one sample's state
    if len(shape) < lead:
        raise UnsupportedOperation(f"{what} got an input of shape {list(shape)}; expected [T, B, ...]")
    layout, sources = _channels(fact, shape, lead)
    w.neurons.append(NeuronCall(node.target, fact, layout, sources, steps, shape[lead - 1]))
    start = neuron_base.setdefault(node.target, sum(c.layout.channels for c in w.neurons[:-1]))
    numbers = layout.broadcast(torch.arange(layout.channels, dtype=torch.float64) + start)
    now = sum(c.steps or 1 for c in w.neurons if c.name == node.target) - (steps or 1)
    step = torch.arange(steps or 1, dtype=torch.float64) + now
    step = step.reshape([-1, *[1] * (len(shape) - 1)]) if steps is not None else step.reshape([1] * len(shape))
    spikes = Count(1.0, 0.0, 1.0, frozenset([node.target]), numbers.expand(shape) + TIME * step)
    return [spikes, *[Membrane(node.target)] * (len(node.outputs) - 1)]


def _channels(fact: Any, shape: tuple[int, ...], lead: int) -> tuple[Layout, Tensor]:
    ids: Tensor | None = fact.sheets[0].ids if isinstance(fact, Current) else fact.ids
    if ids is None:  # spikes without a channel axis (an attention map): the first axis after the batch
        layout = Layout(tuple(shape[lead:]), (0,) if len(shape) > lead else ())
        return layout, torch.arange(layout.channels, dtype=torch.float64)
    sample = ids[(0,) * lead] % TIME
    layout = layout_of(sample)
    return layout, channel_ids(layout, sample)

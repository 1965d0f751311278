"""Walk the recorded graph once and note what reaches every neuron, projection and output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.channel_layout import channel_ids, layout_of
from ptq4snn.discovery.editing import Moved
from ptq4snn.discovery.exclusion import advice, given_names
from ptq4snn.discovery.facts import (
    TIME,
    Constant,
    Count,
    Current,
    Data,
    Fact,
    Finished,
    Membrane,
    Opaque,
    Sheet,
)
from ptq4snn.discovery.graph import Graph, Node, Ref
from ptq4snn.discovery.norms import normalised
from ptq4snn.discovery.projection_modules import PROJECTIONS, channel_axis
from ptq4snn.discovery.rules import apply
from ptq4snn.discovery.thin import channels_of, spread, thin
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import adapter_of
from ptq4snn.network.state_layout import Layout

__all__ = ["NeuronCall", "ProjectionCall", "Then", "Walk", "walk"]

Then = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ProjectionCall:
    name: str
    fact: Fact  # channel numbers of the first sample only
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    in_axis: int = -1  # of its input channels, counted from the end
    steps: tuple[int, ...] = ()  # the time step of every row of its input, in order


@dataclass(frozen=True)
class NeuronCall:
    name: str
    fact: Fact  # channel numbers of one sample at one step only
    layout: Layout
    sources: Tensor  # [C]: number of the projection channel (or source neuron channel) of each channel
    steps: int | None  # None: one step of a [B, ...] input
    batch: int


@dataclass
class Walk:
    """Channel c of projection p has the number base[p] + c."""

    base: dict[str, int]
    channels: dict[str, int]
    facts: dict[int, Fact] = field(default_factory=dict)
    projections: list[ProjectionCall] = field(default_factory=list)
    neurons: list[NeuronCall] = field(default_factory=list)
    outputs: list[Fact] = field(default_factory=list)
    step_outputs: list[Fact] = field(default_factory=list)
    then: list[Then] = field(default_factory=list)  # what is done with each output at the end
    step_then: list[Then] = field(default_factory=list)
    exits: list[Fact] = field(default_factory=list)  # what goes into excluded parts
    floating: list[str] = field(default_factory=list)  # neurons that are fed by excluded parts alone
    steps: Counter[str] = field(default_factory=Counter)  # of every neuron so far
    neuron_base: dict[str, int] = field(default_factory=dict)
    advice: Callable[[Collection[str]], str] = advice  # to keep modules in float

    @property
    def leaving(self) -> list[Fact]:
        """All that leaves the integers: outputs, and what excluded parts read."""
        return [*self.outputs, *self.exits]

    def locate(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Index (in the order of `base`) and own channel of the projections that the numbers belong to."""
        starts = torch.tensor(list(self.base.values()), dtype=torch.float64)
        which = torch.searchsorted(starts, numbers.contiguous(), right=True) - 1
        return which, numbers - starts[which]


def walk(graph: Graph, model: nn.Module) -> Walk:
    modules = dict(model.named_modules())
    channels = {n: m.weight.shape[0] for n, m in modules.items() if isinstance(m, PROJECTIONS)}
    base, total = {}, 0
    for name, count in channels.items():
        base[name] = total
        total += count
    w = Walk(base, channels, advice=lambda names: advice(given_names(model, names)))
    for v in graph.values:
        if v.name is not None and v.name != "result":
            learned = v.name if v.name != "constant" else None
            w.facts[v.id] = Data() if v.name == "input" else Constant(v.data, learned)
    for _, node, unread in graph.visits():
        out = _visit(w, graph, node, modules)
        w.facts.update(zip(node.outputs, out, strict=True))
        for value in unread:  # channel numbers are as large as the tensors: free them
            w.facts.pop(value, None)
    w.outputs, w.then = _before_the_end([w.facts[v] for v in graph.outputs])
    w.step_outputs, w.step_then = _before_the_end([w.facts[v] for v in graph.step_outputs])
    w.facts.clear()
    return w


def _before_the_end(facts: list[Fact]) -> tuple[list[Fact], list[Then]]:
    """Outputs without the softmaxes behind them, and these."""
    bare = [f.fact if isinstance(f, Finished) else f for f in facts]
    return list(bare), [f.then if isinstance(f, Finished) else () for f in facts]


def _visit(w: Walk, graph: Graph, node: Node, modules: dict[str, nn.Module]) -> list[Fact]:
    if node.kind == "projection":
        return _projection(w, graph, node, modules[node.target])
    if node.kind == "norm":
        value = _input(node)
        return [normalised(node, modules[node.target], w.facts[value], len(graph.values[value].shape))]
    if node.kind == "neuron":
        return _neuron(w, graph, node, modules[node.target])
    facts = [w.facts[i] for i in node.inputs]
    if node.kind == "before":
        return [_at_rest(facts[0])]
    if node.kind == "moved":
        return [_moved(modules[node.target], facts[0])]
    if node.kind == "float":
        w.exits += [f for f in facts if not isinstance(f, (Data, Constant))]
        return [Data(floating=True)] * len(node.outputs)
    return apply(graph, node, facts)


def _moved(module: nn.Module, fact: Fact) -> Fact:
    """Behind a call that the quantized model leaves out."""
    assert isinstance(module, Moved)
    if module.kind in ("input", "scale"):
        return fact
    if module.kind == "position":  # what is folded behind it is not the same in front of it
        assert isinstance(fact, Current)
        sheets = (replace(s, ops=(*s.ops, "position"), uneven=s.uneven or "position") for s in fact.sheets)
        return replace(fact, sheets=tuple(sheets))
    before = fact if isinstance(fact, Finished) else Finished(fact, ())
    return replace(before, then=(*before.then, (module.kind, module.axis)))


def _at_rest(fact: Fact) -> Fact:
    """Zeros in the place of what is not there yet at the first step: spikes of which none came."""
    if isinstance(fact, Constant) and fact.value == 0:
        return Count(1.0, 0.0, 0.0, frozenset())
    return fact


def _input(node: Node) -> int:
    """The first tensor argument: the projection's input or the neuron's current."""
    for a in (*node.args, *node.kwargs.values()):
        if isinstance(a, Ref):
            return a.value
    raise UnsupportedOperation(f"'{node.target}' was called without a tensor")


def _refuse(w: Walk, name: str, what: str, fact: Fact) -> None:
    if isinstance(fact, Opaque):
        raise UnsupportedOperation(
            f"{what} is fed through an operation that integers cannot follow: {fact.reason}; move it behind "
            f"the output, or keep what it reads in float: {w.advice(fact.projections or [name])}"
        )
    if isinstance(fact, Membrane):
        raise UnsupportedOperation(
            f"{what} reads the membrane potential of '{fact.neuron}'; feed it that neuron's spikes, or "
            f"keep it in float: {w.advice([name])}"
        )
    if isinstance(fact, Current) and any(s.ids.numel() and float(s.ids.min()) < 0 for s in fact.sheets):
        raise UnsupportedOperation(
            f"{what} reads a buffer of which a part was never written; make the buffer no larger than that"
        )


def _slim(fact: Fact, lead: int) -> Fact:
    """The fact without the channel numbers of other samples than the first."""
    first = (0,) * lead
    if isinstance(fact, Count):
        return replace(fact, ids=None)
    if isinstance(fact, Current):
        return replace(fact, sheets=tuple(replace(s, ids=spread(s.ids[first])) for s in fact.sheets))
    return fact


def _projection(w: Walk, graph: Graph, node: Node, module: nn.Module) -> list[Fact]:
    value = _input(node)
    fact = _at_rest(w.facts[value])
    _refuse(w, node.target, f"the projection '{node.target}'", fact)
    if isinstance(fact, Current) and fact.through is not None:
        raise UnsupportedOperation(
            f"the projection '{node.target}' reads the synaptic current '{fact.through}'; put a neuron in "
            f"front of it, or keep it in float: {w.advice([node.target])}"
        )
    if isinstance(fact, Current):
        _check_aligned(w, fact)
    shape = graph.values[node.outputs[0]].shape
    axis = channel_axis(module) % len(shape)
    steps = _steps(fact, axis, len(shape))
    rows = tuple(int(t) for t in steps.flatten().tolist())
    first = _slim(fact, 1 if axis else 0)
    w.projections.append(
        ProjectionCall(node.target, first, graph.values[value].shape, shape, channel_axis(module), rows)
    )
    numbers = torch.arange(shape[axis], dtype=torch.float64) + w.base[node.target]
    numbers = numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    ids = (numbers + TIME * steps).expand(shape)
    return [Current((Sheet(ids, frozenset([node.target])),))]


def _steps(fact: Fact, axis: int, rank: int) -> Tensor:
    """Time step of every position in front of the channel axis, taken from the projection's input."""
    ids = fact.ids if isinstance(fact, Count) else fact.sheets[0].ids if isinstance(fact, Current) else None
    if ids is None:
        return torch.zeros([1] * rank, dtype=torch.float64)
    first: tuple[Any, ...] = (..., *[slice(0, 1)] * (rank - axis))
    return (ids[first] / TIME).floor()


def _neuron(w: Walk, graph: Graph, node: Node, module: nn.Module) -> list[Fact]:
    value = _input(node)
    fact, shape = w.facts[value], graph.values[value].shape
    what = f"the neuron '{node.target}'"
    _refuse(w, node.target, what, fact)
    if isinstance(fact, Data) and fact.floating:
        w.floating.append(node.target)
        return [Data(floating=True)] * len(node.outputs)
    if isinstance(fact, (Data, Constant)):
        raise UnsupportedOperation(
            f"{what} is fed by the input itself and by nothing quantizable; put a convolution or linear "
            f"layer in front of it, or keep it in float: {w.advice([node.target])}"
        )
    adapter = adapter_of(module)
    assert adapter is not None
    steps = adapter.steps(module, torch.empty(shape, device="meta"))
    lead = 1 if steps is None else 2  # axes in front of one sample's state
    if len(shape) < lead:
        raise UnsupportedOperation(f"{what} got an input of shape {list(shape)}; expected [T, B, ...]")
    if isinstance(fact, Current):
        _check_aligned(w, fact)
    layout, sources = _channels(fact, shape, lead)
    w.neurons.append(NeuronCall(node.target, _slim(fact, lead), layout, sources, steps, shape[lead - 1]))
    start = w.neuron_base.setdefault(node.target, sum(c.layout.channels for c in w.neurons[:-1]))
    numbers = layout.broadcast(torch.arange(layout.channels, dtype=torch.float64) + start)
    step = torch.arange(steps or 1, dtype=torch.float64) + w.steps[node.target]
    w.steps[node.target] += steps or 1
    step = (
        step.reshape([-1, *[1] * (len(shape) - 1)]) if steps is not None else step.reshape([1] * len(shape))
    )
    spec = adapter.spec(module, node.target)
    source = frozenset([node.target])
    out: Fact = Count(1.0, 0.0, float(spec.limit), source, (numbers + TIME * step).expand(shape))
    if spec.emits != "spikes":
        out = _emitted(w, node.target, fact)
    return [out, *[Membrane(node.target)] * (len(node.outputs) - 1)]


def _emitted(w: Walk, name: str, fact: Fact) -> Current:
    """The current behind a neuron that never fires: the one in front of it, through that neuron."""
    if not isinstance(fact, Current) or fact.through is not None:
        raise UnsupportedOperation(
            f"the synaptic current '{name}' is not fed by a projection; put a linear layer or a convolution "
            "in front of it"
        )
    return replace(fact, sheets=fact.sheets[:1], factor=1.0, window=1.0, span=1.0, through=name)


def _check_aligned(w: Walk, current: Current) -> None:
    if len(current.sheets) < 2:
        return
    channels = [w.locate(thin(s.ids) % TIME)[1] for s in current.sheets]
    if any(not torch.equal(*torch.broadcast_tensors(c, channels[0])) for c in channels[1:]):
        names = ", ".join(f"'{n}'" for n in sorted(current.projections))
        raise UnsupportedOperation(
            f"a sum adds different channels of {names} to each other; one scale per channel needs the same"
        )


def _channels(fact: Any, shape: tuple[int, ...], lead: int) -> tuple[Layout, Tensor]:
    ids: Tensor | None = fact.sheets[0].ids if isinstance(fact, Current) else fact.ids
    if ids is None:  # spikes without a channel axis (an attention map): the first axis after the batch
        layout = Layout(tuple(shape[lead:]), (0,) if len(shape) > lead else ())
        return layout, torch.arange(layout.channels, dtype=torch.float64)
    sample = channels_of(ids[(0,) * lead])
    layout = layout_of(sample)
    return layout, channel_ids(layout, sample)

"""Neurons: all calls of one in a forward pass are one operation over the time steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ptq4snn.discovery.graph import Node
from ptq4snn.frameworks import Shell
from ptq4snn.frameworks.foreign import StatefulShell
from ptq4snn.hashing import digest
from ptq4snn.lowering.numbering import Split, number
from ptq4snn.lowering.operands import complete, first_argument, times
from ptq4snn.lowering.tracked import Constant, Fact, Refused, Tracked
from ptq4snn.network.index import Index, compact, strided
from ptq4snn.network.program import Neuron
from ptq4snn.network.state_layout import Layout

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering

__all__ = ["NeuronRun", "lower_neuron"]


@dataclass
class NeuronRun:
    """A neuron over the calls of one forward pass."""

    key: Any
    steps: int
    spikes: int
    potential: int | None
    order: Tensor | Index  # storage element of the spikes for each of the state's, short where regular
    shape: tuple[int, ...]  # of the state

    @property
    def element(self) -> Tensor:
        """[*state shape]"""
        order = torch.from_numpy(self.order.array()) if isinstance(self.order, Index) else self.order
        return order.reshape(self.shape)


def lower_neuron(w: Lowering, node: Node, facts: list[Fact]) -> list[Fact]:
    """The next step or steps of a neuron; all calls must be the same operation at successive times."""
    plan, shell = w.plan.neurons[node.target], w.modules[node.target]
    assert isinstance(shell, Shell)
    at = first_argument(node)
    x = complete(w.facts[at])
    done = w.runs[node.target].steps if node.target in w.runs else 0
    _check_membrane(w, node, at, done)
    if done and not isinstance(shell, StatefulShell):
        raise Refused("is called twice and starts from rest each time; use one neuron for each place")
    s, ran, multi = w.builder.split(x), 1, x.numbers.dim() - len(plan.layout.shape) == 2
    if multi:
        ran = s.shape[0]
    element = _one_state(w, s, x, 1 + multi, done)
    factor = times(w, x, plan)
    key = (x.value, factor, digest(element.contiguous().numpy()))
    if node.target not in w.runs:
        w.runs[node.target] = _new_neuron(w, node, x, element, factor, key)
    run = w.runs[node.target]
    if run.key != key:
        raise Refused("is called on different currents; use one neuron for each")
    run.steps += ran
    return _spikes(w, node, run, done, ran, multi)


def _check_membrane(w: Lowering, node: Node, at: int, done: int) -> None:
    """A membrane that is handed in must be the neuron's own, or zeros to start from at the first step."""
    for value in node.inputs:
        fact = w.facts[value]
        if isinstance(fact, Constant):
            fresh = fact.value == 0.0 or 0 in w.graph.values[value].shape
            own = fact.name == node.target
        else:
            fresh, own = False, fact.kind == "potential" and fact.name == node.target
        if value != at and not own and not fresh:
            raise Refused("starts from a membrane potential that is not its own")
        if value != at and not own and done and 0 not in w.graph.values[value].shape:
            raise Refused("starts from zeros again after its first step")


def _one_state(w: Lowering, s: Split, x: Tracked, lead: int, done: int) -> Tensor:
    """Storage element of each state element, the same for every step and sample; steps must be in order."""
    steps = s.shape[0] if lead == 2 else 1
    if any(s.varies(d) for d in range(lead, len(s.shape))) or any(n > 1 for n in s.element.shape[:lead]):
        raise Refused("sees other steps or samples than those of its first axes")
    if s.shape[lead - 1] != w.builder.batch:
        raise Refused("sees time and samples on one axis, so that its state runs on from sample to sample")
    expected = _samples(w, x.value, done, steps)  # [steps, B]
    found = s.sample.reshape(s.sample.shape[:lead])
    if not torch.equal((found if lead == 2 else found.unsqueeze(0)).expand_as(expected), expected):
        raise Refused("does not see the time steps in order, or sees time and samples on one axis")
    return s.element.reshape(s.element.shape[lead:]).expand(s.shape[lead:])


def _samples(w: Lowering, value: int, done: int, steps: int) -> Tensor:
    """Sample numbers [steps, B] of a value from the step `done` on."""
    b = w.builder
    step = torch.arange(done, done + steps) if b.of(value).time else torch.zeros(steps, dtype=torch.int64)
    return step.reshape(-1, 1) * b.batch + torch.arange(b.batch)


def _new_neuron(w: Lowering, node: Node, x: Tracked, element: Tensor, factor: int, key: Any) -> NeuronRun:
    layout, b = w.plan.neurons[node.target].layout, w.builder
    value, element = _stored_once(w, x.value, element, layout)
    v, everything = b.of(value), torch.arange(element.numel())
    channel, state = torch.empty_like(everything), torch.empty_like(everything)
    numbers = layout.broadcast(torch.arange(layout.channels)).expand(layout.shape)
    channel[element.reshape(-1)] = numbers.reshape(-1)
    state[element.reshape(-1)] = everything
    once = not v.time and (w.total_steps[node.target] == 1 if b.steps > 1 else b.is_summed(value))
    potential, emits = None, w.plan.neurons[node.target].emits
    if emits == "carried" and w.potential_read[node.target]:
        raise Refused("hands on the current it began the step with, and the model reads the one behind it")
    if w.potential_read[node.target] or emits != "spikes":
        if w.potential_read[node.target] and not getattr(w.modules[node.target], "_keeps_potential", True):
            raise Refused(
                "returns its state behind the reset or the decay, which the program does not keep; leave the "
                "state out of the outputs, or (snnTorch) construct it with reset_delay=True"
            )
        potential = b.new_value(replace(v, time=not once), b.is_summed(value))
    spikes = b.add(
        Neuron, (value,), (v.positions, v.channels), node.target, not once, factor=factor,
        channel=_unless(channel, everything % v.channels), element=_unless(state, everything), once=once,
        potential=potential, carried=emits == "carried",
    )  # fmt: skip
    order = strided(element.reshape(-1).numpy())
    return NeuronRun(key, 0, spikes, potential, element if order is None else order, tuple(element.shape))


def _stored_once(w: Lowering, value: int, element: Tensor, layout: Layout) -> tuple[int, Tensor]:
    """A value with one element for each state, and where these are: the value read if it is so, else another
    with the channels of the neuron behind each other."""
    count = element.numel()
    everything = torch.arange(count)
    if count == w.builder.elements(value) and _each_once(element.reshape(-1), count):
        return value, element
    by_position = layout.by_channel(torch.stack([element, everything.reshape(layout.shape)])).transpose(1, 2)
    wanted, state = by_position.reshape(2, -1)  # [positions * channels] each
    place = torch.empty_like(state)
    place[state] = everything
    shape = (layout.elements, layout.channels)
    return w.builder.gather(value, wanted, shape), place.reshape(layout.shape)


def _each_once(numbers: Tensor, count: int) -> bool:
    """Whether `count` numbers are those below it, in any order."""
    seen = torch.zeros(count, dtype=torch.bool)
    if bool((numbers < 0).any()):
        return False
    seen[numbers] = True
    return bool(seen.all())


def _unless(found: Tensor, usual: Tensor) -> Index | None:
    return None if torch.equal(found, usual) else compact(found.numpy())


def _spikes(w: Lowering, node: Node, run: NeuronRun, done: int, ran: int, multi: bool) -> list[Fact]:
    sample = _samples(w, run.spikes, done, ran)
    sample = sample if multi else sample[0]
    element = run.element
    sample = sample.reshape(*sample.shape, *[1] * element.dim())
    numbers = number(sample, element, element.numel())
    once = w.plan.neurons[node.target].most == 1
    out: list[Fact] = [Tracked(run.spikes, numbers, "count", binary=once)]
    if w.plan.neurons[node.target].emits != "spikes":
        out = [Tracked(run.potential or 0, numbers, "current")]
    for _ in node.outputs[1:]:  # the membrane: a value of its own where something else reads it
        name = node.target
        unread = run.potential is None
        out.append(Constant(name=name) if unread else Tracked(run.potential or 0, numbers, "potential", name))
    return out

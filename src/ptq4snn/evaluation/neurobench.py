"""The counts of a network in NeuroBench's terms, by its own definitions (neurobench 2.3; docs/method.md).

    connection sparsity   share of weights that are zero
    activation sparsity   share of zeros among all that the neurons emit, over samples, steps and neurons
    dense                 products of a weight with an input, zeros too, per sample
    effective MACs, ACs   those of a weight that is not zero with an input that is not; accumulates (AC) where
                          the layer's inputs of a call are -1, 0 or 1 alone, else multiply-accumulates

An input position takes part in as many products as its fan-out says, borders, strides and groups included:
fan_out = d sum(y) / d x of the layer with ones for its weights that are not zero. So nothing is multiplied
out: inputs that are not zero are counted at every position, and summed with the fan-out for a weight.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptq4snn.cost.traffic import PlanCost
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.evaluation.fidelity import Fidelity
from ptq4snn.heap import sparing
from ptq4snn.memory import Undo
from ptq4snn.modules.carrier import plain
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import same_draws
from ptq4snn.network.plan import Plan
from ptq4snn.numerics.gradients import safe_gradients
from ptq4snn.schema.report_types import NeuroBench, NeuroBenchCounts

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["SynapticMeter", "SynapticMeters", "counted", "fan_out", "neurobench_counts"]


def fan_out(layer: nn.Module, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Of every input of one sample [*shape], channels first: by how many weights [C, ...] it is read, each
    counted by its value. What several outputs read of one input is summed before: a channel at a time."""
    if isinstance(layer, nn.Linear):
        return weight.sum(0, dtype=torch.float64).expand(shape)
    x = torch.zeros(1, *shape, dtype=torch.float64, device=weight.device, requires_grad=True)
    conv: Any = copy.copy(layer)
    rows = weight.unflatten(0, (conv.groups, -1)).sum(1, dtype=torch.float64)
    taps = rows.flatten(0, 1).unsqueeze(1)  # [Cin, 1, ...]
    conv.groups = len(taps)
    with torch.enable_grad(), safe_gradients():
        y: Tensor = conv._conv_forward(x, taps, None)  # whatever its padding
        (found,) = torch.autograd.grad(y.sum(), x)
    return found[0]


class SynapticMeter:
    """Counts the operations of one layer, as a forward pre-hook."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer, self.axis = layer, channel_axis(layer)
        self.weight: Tensor = layer.weight.detach()  # type: ignore[operator]
        self.dense = 0.0
        self.calls: list[tuple[float, bool]] = []  # operations, and whether they are additions alone
        self.first = self.at = 0  # call of the batch that runs: its first, its next
        self.fans: dict[tuple[int, ...], tuple[Tensor, float]] = {}

    def __call__(self, _module: nn.Module, args: Any) -> None:
        x = plain(args[0]).detach()
        shape = tuple(x.shape[self.axis :])
        effective, all_of_sample = self._fans(shape)
        read = torch.ne(x, 0, out=torch.empty_like(x))  # ones and zeros of the same type: bool is slower
        at = read.reshape(-1, *shape).sum(0).double()  # how often each position is not zero
        operations, added = float((at * effective).sum()), _same(x, read) or _same(x.abs(), read)
        if self.at < len(self.calls):  # of another portion of the batch
            before = self.calls[self.at]
            self.calls[self.at] = before[0] + operations, before[1] and added
        else:
            self.calls.append((operations, added))
        self.at += 1
        self.dense += all_of_sample * (x.numel() // max(1, effective.numel()))

    @property
    def acs(self) -> float:
        return sum(n for n, added in self.calls if added)

    @property
    def macs(self) -> float:
        return sum(n for n, added in self.calls if not added)

    def begin(self) -> None:
        """A batch comes next."""
        self.first = len(self.calls)

    def start(self, samples: int) -> None:
        """A portion of it comes next."""
        self.at = self.first

    def mark(self) -> Undo:
        """What takes back all that is counted from here on."""
        calls, dense = list(self.calls), self.dense

        def undo() -> None:
            self.calls, self.dense = calls, dense

        return undo

    def _fans(self, shape: tuple[int, ...]) -> tuple[Tensor, float]:
        """Of the weights that are not zero, and the sum over all inputs of that of all weights."""
        if shape not in self.fans:
            every = fan_out(self.layer, torch.ones_like(self.weight, dtype=torch.bool), shape)
            effective = fan_out(self.layer, self.weight != 0, shape)
            short = effective.short()  # of as many numbers as the input has, for every layer
            effective = short if torch.equal(short.double(), effective) else effective
            self.fans[shape] = effective, float(every.sum())
        return self.fans[shape]

    @property
    def zeros(self) -> int:
        return int((self.weight == 0).sum())


def _same(x: Tensor, read: Tensor) -> bool:
    """Whether both are equal; torch.equal is slower than a comparison in the same type."""
    return x.dtype == torch.bool or float(torch.ne(x, read, out=torch.empty_like(x)).sum()) == 0


SynapticMeters = dict[str, SynapticMeter]  # by projection


@contextmanager
def counted(prepared: Prepared, model: QuantizedModel) -> Iterator[tuple[SynapticMeters, SynapticMeters]]:
    """Inside, what both networks run is counted: the float one first."""
    before: SynapticMeters = {}
    after: SynapticMeters = {}
    handles = []
    try:
        for name in prepared.folded.discovery.projections:
            floating, quantized = prepared.folded.projection(name), model.model.get_submodule(name)
            assert isinstance(quantized, QuantProjection)
            before[name], after[name] = SynapticMeter(floating), SynapticMeter(quantized.inner)
            handles.append(floating.register_forward_pre_hook(before[name]))
            handles.append(quantized.register_forward_pre_hook(after[name]))
        yield before, after
    finally:
        for h in handles:
            h.remove()


def neurobench_counts(
    prepared: Prepared,
    plan: Plan,
    meters: tuple[SynapticMeters, SynapticMeters],
    found: Fidelity,
    cost: PlanCost,
) -> NeuroBench:
    """Footprints: before, parameters and buffers of the model; after, packed weights, scales, biases and what
    says the states' scales. States are in neither."""
    before, w = footprint(prepared), cost.weights
    after = w.packed + w.scales + w.biases + cost.state.packed_with_shifts - cost.state.payload
    sparsity = _activation_sparsity(prepared, plan, found)
    return {
        "before": _counts(meters[0], before, sparsity[0], found.samples),
        "after": _counts(meters[1], after, sparsity[1], found.samples),
    }


def footprint(prepared: Prepared) -> int:
    """Bytes of parameters and buffers, without buffers that hold a state: their size is that of the batch.
    Found once, best before there is more than the float network in memory."""
    if prepared.cache.footprint is None:
        with sparing():
            prepared.cache.footprint = _footprint(prepared)
    return prepared.cache.footprint


def _footprint(prepared: Prepared) -> int:
    given = prepared.model  # it has run, so that all of its buffers are there
    if all(type(m).__module__.startswith("torch.nn.") for m in given.modules() if m._buffers):  # norms
        return sum(t.numel() * t.element_size() for t in [*given.parameters(), *given.buffers()])
    model, axis = copy_model(given, given.parameters()), prepared.batch_axis
    few = prepared.sample.narrow(axis, 0, 1)
    shapes = []
    for x in (few, torch.cat([few, few], axis)):
        reset_neurons(model)
        with torch.no_grad(), same_draws():
            model(x)
        shapes.append({name: b.shape for name, b in model.named_buffers()})
    own = [b for name, b in model.named_buffers() if shapes[0].get(name) == shapes[1][name]]
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *own])


def _counts(meters: SynapticMeters, footprint: int, sparsity: float | None, samples: int) -> NeuroBenchCounts:
    weights = sum(m.weight.numel() for m in meters.values())
    n = max(1, samples)
    return {
        "footprint": footprint,
        "connection_sparsity": sum(m.zeros for m in meters.values()) / max(1, weights),
        "activation_sparsity": sparsity,
        "effective_macs": sum(m.macs for m in meters.values()) / n,
        "effective_acs": sum(m.acs for m in meters.values()) / n,
        "dense": sum(m.dense for m in meters.values()) / n,
    }


def _activation_sparsity(
    prepared: Prepared, plan: Plan, found: Fidelity
) -> tuple[float | None, float | None]:
    """Before and after; None: nothing fires."""
    fires = [n for n in plan.neurons if prepared.folded.specs[n].emits == "spikes"]
    sizes = {n: plan.neurons[n].elements * plan.neurons[n].channels * plan.neurons[n].steps for n in fires}
    total = sum(sizes.values())
    if not total:
        return None, None
    spikes = [(found.neurons[n].rate_before * s, found.neurons[n].rate_after * s) for n, s in sizes.items()]
    return 1 - sum(b for b, _ in spikes) / total, 1 - sum(a for _, a in spikes) / total

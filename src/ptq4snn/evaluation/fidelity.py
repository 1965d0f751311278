"""How far the quantized network behaves like the float one: both run in lockstep on the samples that report.

Of large networks, on a CPU, the float model runs in a thread beside the quantized one and never goes further
than that needs it: spikes and states of one neuron at one step are held at a time. Else the float model runs
first, and all of a micro-batch are held. Memory follows the micro-batch, not the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.evaluation.beside import Beside
from ptq4snn.evaluation.examples import EXAMPLES, Example, Examples, decisions, is_map
from ptq4snn.evaluation.meters import InputMeter, Meter, NeuronFidelity, NeuronMeter, emd, share
from ptq4snn.memory import Portion, Undo
from ptq4snn.modules.output_ends import unfinished
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import divergence, same_draws
from ptq4snn.schema.score_types import Task

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared
from ptq4snn.stages import COMPARING

__all__ = ["Fidelity", "NeuronFidelity", "compare", "emd"]

HELD_BYTES = 2**28  # of float spikes and states; larger models are compared in smaller parts
LITTLE_BYTES = 2**26  # of those of a part that are held rather than waited for: threads take time
AT_ONCE_BYTES = 2**25  # of those of the portions that a part runs in: their outputs are joined
FEW_STEPS = 4  # over which torch adds up outputs alike, whatever the number of samples


@dataclass(frozen=True)
class Fidelity:
    """The whole network. `firing`: mean |input| of every projection that reads spikes.

    kl and agreement (equal decisions) are means over the samples, of a segmentation over their pixels.
    examples: the first samples of a segmentation; None where the model decides over whole samples.
    """

    neurons: dict[str, NeuronFidelity]
    firing_before: dict[str, float]
    firing_after: dict[str, float]
    kl: float
    agreement: float
    samples: int
    examples: Examples | None = None

    @property
    def task(self) -> Task:
        return "classification" if self.examples is None else "segmentation"

    @property
    def flip_rate(self) -> float | None:
        """Share of all spike positions that differ."""
        return share(
            sum(n.flips for n in self.neurons.values()), sum(n.positions for n in self.neurons.values())
        )

    def saturation(self, names: Iterable[str]) -> float | None:
        """Per cent of the state values of these neurons."""
        counted = [self.neurons[n] for n in names]
        found = share(sum(n.saturated for n in counted), sum(n.states for n in counted))
        return None if found is None else 100 * found

    @property
    def emd(self) -> float:
        """Mean over the neurons, weighted by their channels: mass moves inside a neuron only."""
        total = sum(n.rates_before.numel() for n in self.neurons.values())
        return sum(n.emd * n.rates_before.numel() for n in self.neurons.values()) / max(1, total)


@contextmanager
def _attached(
    prepared: Prepared, model: QuantizedModel, meters: dict[str, NeuronMeter],
    inputs: dict[str, tuple[InputMeter, InputMeter]],
) -> Iterator[None]:  # fmt: skip
    """Probes on all neurons and hooks on all projections that read spikes, taken off again in any case."""
    folded = prepared.folded
    handles = []
    try:
        for name, meter in meters.items():
            folded.core(name).probe, model.core(name).probe = meter.before, meter.after
        for name, (before, after) in inputs.items():
            handles.append(folded.projection(name).register_forward_pre_hook(before))
            handles.append(model.model.get_submodule(name).register_forward_pre_hook(after))
        yield
    finally:
        for h in handles:
            h.remove()
        for name in meters:
            folded.core(name).probe = model.core(name).probe = None
        reset_neurons(folded.model)
        reset_neurons(model)


def _part_size(prepared: Prepared, most: int) -> int:
    """Samples of which not more than so many bytes are held."""
    held = (
        n.steps * prod(n.layout.shape) * (5 if n.carries_state else 1)
        for n in prepared.folded.discovery.neurons.values()
    )
    return max(1, most // max(1, sum(held)))


@dataclass
class Outputs:
    """Sums over the samples, and the first of them where the logits are maps."""

    axis: int
    kl: float = 0.0
    agreement: float = 0.0
    samples: int = 0
    classes: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, x: Tensor, before: Tensor, after: Tensor) -> None:
        """A batch and what both networks make of it: logits [B, classes, ...]."""
        here, (kl, agreement) = x.shape[self.axis], divergence(before, after)
        self.kl, self.agreement = self.kl + here * kl, self.agreement + here * agreement
        self.samples += here
        if is_map(before) and len(self.examples) < EXAMPLES:
            self.classes = before.shape[1]
            left = EXAMPLES - len(self.examples)
            pairs = zip(*(decisions(y, x.shape[-2:], left) for y in (before, after)), strict=True)
            self.examples += [Example(x.select(self.axis, i).cpu(), *p) for i, p in enumerate(pairs)]


def _lockstep(prepared: Prepared, model: QuantizedModel, meters: Sequence[Meter]) -> Outputs:
    """Run both models over all samples that report."""
    axis, size = prepared.batch_axis, _part_size(prepared, HELD_BYTES)
    little = _part_size(prepared, LITTLE_BYTES)
    few = all(n.steps <= FEW_STEPS for n in prepared.folded.discovery.neurons.values())
    fewer = prepared.room.smaller(_part_size(prepared, AT_ONCE_BYTES)) if few else prepared.room
    found, seen = Outputs(axis), []  # logits of the float model

    def one(network: nn.Module, x: Tensor) -> Tensor:
        reset_neurons(network)
        with torch.no_grad(), same_draws(), unfinished(network):
            return prepared.readout(network(x))

    def both(portion: Portion) -> tuple[Tensor, Tensor]:
        for meter in meters:
            meter.start(portion.count)
        floating = prepared.folded.model
        apart = portion.x.device.type == "cpu" and not prepared.room.whole  # draws and settings are of both
        if portion.whole <= little or not apart:
            return one(floating, portion.x), one(model, portion.x)
        alone = torch.random.fork_rng(devices=[])  # the float network gives back the state that it met last
        with alone, _beside(meters, lambda: one(floating, portion.x)) as before:
            after = one(model, portion.x)
            return before.result(), after

    def mark() -> Undo:
        undos = [meter.mark() for meter in meters]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    for batch in prepared.progress.track(prepared.reported, len(prepared.reported), COMPARING):
        for x in batch.split(size, axis):
            for meter in meters:
                meter.begin()
            room = prepared.room if x.shape[axis] <= little else fewer
            pairs = room.run(x, both, COMPARING, mark)
            before, after = (torch.cat(y) for y in zip(*pairs, strict=True))
            found.add(x, before, after)
            seen.append(before)
    prepared.note_reported(seen)
    return found


@contextmanager
def _beside(meters: Sequence[Meter], work: Callable[[], Tensor]) -> Iterator[Beside[Tensor]]:
    """The float network, which goes on when the meters of the quantized one want something of it."""
    neurons = [m for m in meters if isinstance(m, NeuronMeter)]

    def paused(pause: Callable[[], None]) -> Tensor:
        for m in neurons:
            m.pause = pause
        return work()

    beside = Beside(paused)
    for m in neurons:
        m.advance = beside.advance
    try:
        yield beside
    finally:
        beside.close()
        for m in neurons:
            m.pause = m.advance = None


def compare(prepared: Prepared, model: QuantizedModel, beside: Sequence[Meter] = ()) -> Fidelity:
    """One float and one quantized pass over the micro-batches that report; meters `beside` count as well."""
    d, specs = prepared.folded.discovery, prepared.folded.specs
    meters = {n: NeuronMeter(i, model.core(n), specs[n].theta) for n, i in d.neurons.items()}
    inputs = {
        n: (InputMeter(p.lo < 0), InputMeter(p.lo < 0))
        for n, p in d.projections.items()
        if p.reads == "count"
    }
    with torch.no_grad(), _attached(prepared, model, meters, inputs):
        watching: list[Meter] = [
            *meters.values(),
            *(meter for pair in inputs.values() for meter in pair),
            *beside,
        ]
        found = _lockstep(prepared, model, watching)
    return Fidelity(
        neurons={n: m.result() for n, m in meters.items()},
        firing_before={n: before.mean() for n, (before, _) in inputs.items()},
        firing_after={n: after.mean() for n, (_, after) in inputs.items()},
        kl=found.kl / max(1, found.samples),
        agreement=found.agreement / max(1, found.samples),
        samples=found.samples,
        examples=Examples(found.classes, tuple(found.examples)) if found.examples else None,
    )

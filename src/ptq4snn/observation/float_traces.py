"""Traces of the float network: of every neuron that carries a state, over the first samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from ptq4snn.discovery.folding import Folded
from ptq4snn.observation.traces import Trace, Tracer

__all__ = ["FloatTracers"]


def _current(gain: Tensor, x: Tensor) -> Tensor:
    return gain.to(x) * x  # on the model's device


@dataclass(frozen=True)
class FloatTracers:
    """Probes by neuron; `batches` is how many micro-batches they are for."""

    folded: Folded
    by_neuron: dict[str, Tracer]
    batches: int

    @classmethod
    def of(cls, folded: Folded, batches: Sequence[Tensor], batch_axis: int) -> FloatTracers:
        samples = sum(x.shape[batch_axis] for x in batches)
        found = {}
        for name, info in folded.discovery.neurons.items():
            if info.carries_state:
                gain = folded.specs[name].gain
                current = partial(_current, gain)
                found[name] = Tracer(info.layout, current, info.steps, samples)
                found[name].of_rows = current if gain.dim() == 0 else None
        return cls(folded, found, len(batches))

    def mark(self) -> dict[str, tuple[int, int]]:
        return {name: tracer.mark() for name, tracer in self.by_neuron.items()}

    def rewind(self, mark: dict[str, tuple[int, int]]) -> None:
        for name, tracer in self.by_neuron.items():
            tracer.rewind(mark[name])

    def join(self, mark: dict[str, tuple[int, int]]) -> None:
        for name, tracer in self.by_neuron.items():
            tracer.join(mark[name])

    def traces(self) -> dict[str, Trace]:
        """What was seen; a synaptic current is judged by the spikes behind it."""
        found = {name: tracer.trace() for name, tracer in self.by_neuron.items() if tracer.rows}
        for name, info in self.folded.discovery.neurons.items():
            if info.synapse in found and name in found:
                found[info.synapse] = replace(found[info.synapse], spikes=found[name].spikes)
        return found

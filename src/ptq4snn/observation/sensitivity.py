"""Sensitivity of the loss to the spikes that quantization changes (the paper's g_c).

    z_dc = < dL_d / dS^q_dc , S^q_dc - S^fp_dc >         g_c = mean_d | z_dc + z_dc^2 / 2 |

L is the cross entropy of the 4-bit reference against the float model's own decision: no labels. z is a sum
over samples: of a large network the gradient of a few comes back at a time, and their sums are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.heap import give_back
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.output_ends import unfinished
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import Readout, same_draws
from ptq4snn.numerics.gradients import safe_gradients

__all__ = ["at_once", "sensitivity"]

# spikes of all neurons and steps of the samples whose gradient comes back at a time; a graph takes some 60
# bytes for each. A number that hangs on the network alone: float sums are the same on every machine
MOST_SPIKES = 2**27


def at_once(folded: Folded) -> int:
    """Samples whose gradient comes back at a time."""
    spikes = sum(n.steps * prod(n.layout.shape) for n in folded.discovery.neurons.values())
    return max(1, MOST_SPIKES // max(1, spikes))


class SpikeRecorder:
    """Keeps a float core's spikes, one tensor of bytes for each step; of a synapse its currents."""

    def __init__(self, current: bool) -> None:
        self.current = current
        self.spikes: list[Tensor] = []

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self.spikes.append(h if self.current else s.to(torch.uint8))


class SpikeDifference:
    """Sums grad * (S^q - S^fp) per channel while the gradient comes back through the spikes.

    Of a synapse, whose `core` is given, the same of its current, counted in units."""

    def __init__(self, layout: object, expected: list[Tensor], core: IntegerCore | None) -> None:
        self.layout, self.expected, self.core = layout, expected, core
        self.step = 0
        self.z: Tensor | float = 0.0

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        expected = self.expected[self.step]
        self.step += 1
        if self.core is not None:
            s, expected = h, self.core.from_potential(expected)
        difference = s.detach() - expected.to(s.dtype)
        if not s.requires_grad:
            s.requires_grad_(True)  # the first neuron: nothing in front of it needs a gradient

        def add(grad: Tensor) -> None:
            rows = self.layout.by_channel(grad * difference)  # type: ignore[attr-defined]
            self.z = self.z + rows.double().sum((0, 2))  # sooner than a sum that casts on its way

        s.register_hook(add)


def sensitivity(
    folded: Folded, reference: QuantizedModel, parts: Sequence[Tensor], readout: Readout
) -> dict[str, Tensor]:
    """|z + z^2 / 2| [C] of every neuron on one micro-batch, which is given in parts."""
    counts = [p.numel() for p in parts]
    shares = [1.0] if len(parts) == 1 else [n / sum(counts) for n in counts]
    total: dict[str, Tensor] = {}
    for x, share in zip(parts, shares, strict=True):
        for n, z in _sums(folded, reference, x, readout, share).items():
            total[n] = total[n] + z if n in total else z
        if len(parts) > 1:
            give_back()
    return {n: (z + z.square() / 2).abs() for n, z in total.items()}


def _sums(
    folded: Folded, reference: QuantizedModel, x: Tensor, readout: Readout, share: float
) -> dict[str, Tensor]:
    """z [C] of every neuron on samples that are this share of a micro-batch."""
    neurons = folded.discovery.neurons
    currents = {n for n in neurons if folded.specs[n].emits != "spikes"}
    recorders = {n: SpikeRecorder(n in currents) for n in neurons}
    for n, r in recorders.items():
        folded.core(n).probe = r
    reset_neurons(folded.model)
    with torch.no_grad(), same_draws():
        labels = readout(folded.model(x)).argmax(1)
    probes = {
        n: SpikeDifference(
            neurons[n].layout, recorders[n].spikes, reference.core(n) if n in currents else None
        )
        for n in neurons
    }
    for n, p in probes.items():
        folded.core(n).probe = None
        reference.core(n).probe = p
    reference.reset_state()
    with torch.enable_grad(), same_draws(), safe_gradients(), unfinished(reference):
        loss = F.cross_entropy(readout(reference(x)), labels)
        (loss if share == 1.0 else loss * share).backward()
    found = {}
    for n, p in probes.items():
        reference.core(n).probe = None
        found[n] = torch.as_tensor(p.z, dtype=torch.float64).expand(neurons[n].layout.channels).cpu()
    reset_neurons(folded.model)
    reference.reset_state()
    return found

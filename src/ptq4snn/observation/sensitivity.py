"""Sensitivity of the loss to the spikes that quantization changes (the paper's g_c).

    z_dc = < dL_d / dS^q_dc , S^q_dc - S^fp_dc >         g_c = mean_d | z_dc + z_dc^2 / 2 |

L is the cross entropy of the 4-bit reference against the float model's own decision: no labels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import Readout, same_draws
from ptq4snn.numerics.gradients import safe_gradients

__all__ = ["sensitivity"]


class SpikeRecorder:
    """Keeps a float core's spikes, one bool tensor for each step."""

    def __init__(self) -> None:
        self.spikes: list[Tensor] = []

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        self.spikes.append(s.bool())


class SpikeDifference:
    """Sums grad * (S^q - S^fp) per channel while the gradient comes back through the spikes."""

    def __init__(self, layout: object, expected: list[Tensor]) -> None:
        self.layout, self.expected = layout, expected
        self.step = 0
        self.z: Tensor | float = 0.0

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        difference = s.detach() - self.expected[self.step].to(s.dtype)
        self.step += 1
        if not s.requires_grad:
            s.requires_grad_(True)  # the first neuron: nothing in front of it needs a gradient

        def add(grad: Tensor) -> None:
            rows = self.layout.by_channel(grad * difference)  # type: ignore[attr-defined]
            self.z = self.z + rows.sum((0, 2), dtype=torch.float64)

        s.register_hook(add)


def sensitivity(
    folded: Folded, reference: QuantizedModel, batches: Iterable[Tensor], readout: Readout
) -> dict[str, Tensor]:
    """g_c [C] of every neuron, over the given micro-batches."""
    total: dict[str, Tensor] = {}
    count = 0
    neurons = folded.discovery.neurons
    for x in batches:
        recorders = {n: SpikeRecorder() for n in neurons}
        for n, r in recorders.items():
            folded.core(n).probe = r
        reset_neurons(folded.model)
        with torch.no_grad(), same_draws():
            labels = readout(folded.model(x)).argmax(1)
        probes = {n: SpikeDifference(neurons[n].layout, recorders[n].spikes) for n in neurons}
        for n, p in probes.items():
            folded.core(n).probe = None
            reference.core(n).probe = p
        reference.reset_state()
        with torch.enable_grad(), same_draws(), safe_gradients():
            loss = F.cross_entropy(readout(reference(x)), labels)
            loss.backward()
        for n, p in probes.items():
            reference.core(n).probe = None
            z = torch.as_tensor(p.z, dtype=torch.float64).expand(neurons[n].layout.channels).cpu()
            total[n] = total.get(n, 0) + (z + z.square() / 2).abs()
        count += 1
    reset_neurons(folded.model)
    reference.reset_state()
    return {n: g / max(1, count) for n, g in total.items()}

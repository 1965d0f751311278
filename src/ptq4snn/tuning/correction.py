"""Corrections without training: biases that undo a mean error, thresholds that keep the firing rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.replay import Reference, replay_cost
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.observation.traces import Trace
from ptq4snn.prepared import Prepared
from ptq4snn.rounding.network import Network, collected, forward
from ptq4snn.tuning.judging import plan_levels

__all__ = ["corrected_biases", "corrected_threshold"]

MOVES = (0, 1, 2, 3, 4, 6, 8, 11, 14, 18, 23, 29)  # hundredths of a threshold, to both sides


class Mean:
    """Mean output of a projection per channel, as a forward hook."""

    def __init__(self, module: nn.Module) -> None:
        self.axis = channel_axis(module)
        self.total: Tensor | float = 0.0
        self.count = 0

    def __call__(self, _m: nn.Module, _a: Any, out: Tensor) -> None:
        rows = out.movedim(self.axis, 0).flatten(1)
        self.total = self.total + rows.sum(1, dtype=torch.float64)
        self.count += rows.shape[1]

    def mean(self) -> Tensor:
        return torch.as_tensor(self.total).cpu() / max(1, self.count)


def _means(model: nn.Module, names: list[str], batches: Sequence[Tensor]) -> dict[str, Tensor]:
    """Mean outputs [C] of projections."""
    meters = {n: Mean(model.get_submodule(n)) for n in names}
    handles: list[Any] = [model.get_submodule(n).register_forward_hook(m) for n, m in meters.items()]
    with collected(handles, model):
        for x in batches:
            forward(model, x)
    return {n: m.mean() for n, m in meters.items()}


def corrected_biases(prepared: Prepared, lattice: Lattice) -> dict[str, Tensor]:
    """Biases [C] that give every projection of the network with quantized weights the mean output it had.

    Projections are corrected in execution order, each behind the corrected ones.
    """
    names = list(lattice.projections)
    expected = _means(prepared.folded.model, names, prepared.kept)
    network = Network(prepared, lattice)
    biases = {}
    for name in names:
        network.settle((name,), {})
        error = _means(network.folded.model, [name], prepared.kept)[name] - expected[name]
        biases[name] = lattice.projections[name].bias - error
        weight = network.folded.weight(name)
        network.folded.store(name, weight, biases[name].to(weight.device))
    return biases


def corrected_threshold(assembly: Assembly, plan: NeuronPlan, trace: Trace) -> Tensor:
    """The threshold [C] near the trained one with the least replay cost; of equal costs the nearest to it."""
    n = assembly.lattice.neurons[plan.name]
    step = torch.tensor(plan.scales, dtype=torch.float64)
    levels = plan_levels(plan)
    moved = [n.theta * (1 + side * m / 100) for m in MOVES for side in (-1, 1)]
    trained = assembly.dynamics(n).theta  # one measure for all, or a higher threshold alone would cost less
    known = Reference.of(assembly.dynamics(n), trace)
    costs = torch.stack(
        [replay_cost(assembly.dynamics(n, theta), trace, step, levels, trained, known) for theta in moved]
    )
    return torch.stack(moved).gather(0, costs.argmin(0, keepdim=True))[0]

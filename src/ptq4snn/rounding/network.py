"""The float network whose weights become integers unit by unit: quantized inputs for what comes next.

States stay in float. A forward pass may stop as soon as it has given what was asked for; states are reset
before and after every batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ptq4snn.bridge.lattice import Lattice
from ptq4snn.bridge.weights import weight_floor
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.modules.readout import same_draws
from ptq4snn.numerics.nearest import QuantWeight, input_scales

if TYPE_CHECKING:
    from ptq4snn.prepared import Prepared

__all__ = ["Enough", "Network", "collected", "forward"]


class Enough(Exception):
    """Raised inside a forward pass that has given what was asked for."""


class Network:
    """A copy of the folded model and what its projections are rounded to so far."""

    def __init__(self, prepared: Prepared, lattice: Lattice) -> None:
        self.prepared, self.lattice = prepared, lattice
        self.float = prepared.folded
        self.folded: Folded = replace(prepared.folded, model=copy_model(prepared.folded.model))
        self.scales: dict[str, Tensor] = {}  # [C], where the lattice's were not kept

    def weight(self, name: str) -> QuantWeight:
        """Bits, scales and nearest integers of the lattice."""
        return self.lattice.projections[name].weight

    def is_open(self, name: str) -> bool:
        """Whether the rounding of a projection is free: one that reads data or a stream keeps the nearest."""
        p = self.lattice.projections[name]
        return p.input_steps is None and p.weight.bits is not None

    def may_rescale(self, name: str) -> bool:
        """Whether a scale hangs on nothing but its own weight: not chosen with a state's, not shared."""
        p, recipe = self.lattice.projections[name], self.lattice.basis.recipe
        shared = p.info.role == "output" or bool(p.info.tied or p.info.summed)
        coupling = recipe.override(name).coupling or recipe.coupling
        shifted = p.info.stream is not None and recipe.stream == "shift"
        return not (shared or shifted or coupling == "flowq" or name in self.lattice.given)

    def floor(self, name: str) -> Tensor | float:
        """The least scale [C] that a weight may have."""
        p = self.lattice.projections[name]
        return weight_floor(self.float, p.info, float(p.lattice[0] / p.weight.scales[0]), p.target)

    def settle(
        self,
        names: tuple[str, ...],
        integers: Mapping[str, Tensor],
        scales: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Put the quantized weights of a unit in their places, nearest where there are no integers, with the
        lattice's scales where there are none."""
        self.scales |= scales or {}
        for name in names:
            q = self.weight(name)
            if q.bits is not None:
                values = self.values(name, integers.get(name, q.integers))
                self.folded.store(name, values.to(self.folded.weight(name).device))

    def values(self, name: str, integers: Tensor) -> Tensor:
        """The weight that integers stand for, in float64."""
        scales = self.scales.get(name, self.weight(name).scales)
        values = integers.double() * scales.view(-1, *[1] * (integers.dim() - 1))
        steps = self.lattice.projections[name].input_steps  # they are in the weight
        return values if steps is None else values / input_scales(values, steps)


@contextmanager
def collected(handles: list[Any], model: nn.Module) -> Iterator[None]:
    """Hooks go and states are forgotten, whatever happens."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        reset_neurons(model)


def forward(model: nn.Module, x: Tensor) -> None:
    """One pass from fresh states, until its end or `Enough`."""
    reset_neurons(model)
    with same_draws(), torch.no_grad():
        try:
            model(x)
        except Enough:
            return

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
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.modules.readout import same_draws
from ptq4snn.numerics.nearest import QuantWeight, input_scales

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["Enough", "Network", "collected", "forward"]


class Enough(Exception):
    """Raised inside a forward pass that has given what was asked for."""


class Network:
    """A copy of the folded model and what its projections are rounded to so far."""

    def __init__(self, prepared: Prepared, lattice: Lattice) -> None:
        self.prepared, self.lattice = prepared, lattice
        self.float = prepared.folded
        self.folded: Folded = replace(prepared.folded, model=copy_model(prepared.folded.model))

    def weight(self, name: str) -> QuantWeight:
        """Bits, scales and nearest integers."""
        return self.lattice.projections[name].weight

    def is_open(self, name: str) -> bool:
        """Whether the rounding of a projection is free: one that reads data or a stream keeps the nearest."""
        p = self.lattice.projections[name]
        return p.input_steps is None and p.weight.bits is not None

    def settle(self, names: tuple[str, ...], integers: Mapping[str, Tensor]) -> None:
        """Put the quantized weights of a unit in their places, nearest where there are no integers."""
        for name in names:
            q = self.weight(name)
            if q.bits is not None:
                module: Any = self.folded.projection(name)
                values = self.values(name, integers.get(name, q.integers)).to(module.weight)
                module.weight = nn.Parameter(values, requires_grad=False)

    def values(self, name: str, integers: Tensor) -> Tensor:
        """The weight that integers stand for, in float64."""
        values = integers.double() * self.weight(name).scales.view(-1, *[1] * (integers.dim() - 1))
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

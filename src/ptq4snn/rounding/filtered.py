"""Inputs as the membrane behind a projection adds them up (after SBC, arXiv 2506.03996).

    x~[t] = leak x~[t-1] + x[t]        W x~[t] is the potential before any spike is taken off, without bias

A soft reset takes off whole thresholds and leaves all else in the membrane: an error dW x[t] stays there, and
those of many steps add up or cancel out. So the least |dW x~|^2 keeps what decides over spikes, where
|dW x|^2 keeps the current of every single step. A hard reset forgets what was added up, and x~ would be what
never happened: there x stays as it is. Behind a synaptic current both leaks filter, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ptq4snn.discovery.blocks import calls
from ptq4snn.discovery.info import ProjectionInfo, RowOrder
from ptq4snn.rounding.network import Network

__all__ = ["Filter", "find_filters"]

FINE = 256  # steps of one spike, that sums with a leak are rounded to


@dataclass
class Filter:
    """Filters what one projection reads; `begin` forgets the batch before.

    leaks: of the neurons behind it, one after the other.
    rows: how the steps of a call lie in its rows; None: each call is a step.
    axes: of the input, behind its rows: channels and positions.
    """

    leaks: tuple[float, ...]
    rows: RowOrder | None
    axes: int
    batch: int = 0
    last: list[Tensor] = field(default_factory=list, repr=False)  # of each leak

    @property
    def step(self) -> float:
        """In spikes: sums without a leak are whole, others are rounded to 1 / FINE. Their products are then
        sums of integers, which every CPU adds up alike."""
        return 1.0 if all(leak.is_integer() for leak in self.leaks) else 1 / FINE

    def begin(self, batch: int) -> None:
        self.batch, self.last = batch, []

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows ..., channels, positions ...], of one shape in all calls of a batch."""
        x = x.detach()
        if self.rows is None:
            return self._step(x)
        each, apart = self.rows.each, self.rows.apart
        flat = x.reshape(-1, *x.shape[x.dim() - self.axes :])
        steps = len(flat) // (each * self.batch)
        by_step = flat.unflatten(0, (-1, steps, apart or each * self.batch))  # [n, T, rows of a step, ...]
        self.last = []
        return torch.stack([self._step(now) for now in by_step.unbind(1)], 1).reshape(x.shape)

    def _step(self, x: Tensor) -> Tensor:
        """One step of all filters."""
        found: list[Tensor] = []
        for i, leak in enumerate(self.leaks):
            x = x + leak * self.last[i] if self.last else x
            found.append(x)
        self.last = found
        return x


def find_filters(network: Network, unit: tuple[str, ...]) -> dict[str, Filter]:
    """Of the unit's projections that read spikes and feed a membrane that nothing but its leak forgets."""
    projections = network.folded.discovery.projections
    often = calls(network.folded.discovery.graph)
    found = {}
    for name in unit:
        behind = _membrane(network, projections[name])
        info = projections[name]
        if behind is not None and (info.rows is not None or often[name] == behind[1]):
            found[name] = Filter(behind[0], info.rows, max(1, network.folded.weight(name).dim() - 1))
    return found


def _membrane(network: Network, info: ProjectionInfo) -> tuple[tuple[float, ...], int] | None:
    """The leaks behind a projection, mean over channels, and the number of steps; None: it has no filter."""
    neurons, specs = network.folded.discovery.neurons, network.folded.specs
    fed = [n for n in info.feeds if neurons[n].carries_state]
    if info.reads != "count" or not fed:
        return None
    path = [fed[0], *(n for n, read in neurons.items() if read.synapse == fed[0])]
    if any(specs[n].reset == "hard" for n in {*fed, *path}):
        return None
    leaks = tuple(float(torch.as_tensor(specs[n].leak, dtype=torch.float64).mean()) for n in path)
    return leaks, neurons[fed[0]].steps

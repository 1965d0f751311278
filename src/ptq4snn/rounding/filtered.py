"""Inputs as the membrane behind a projection adds them up (SBC, arXiv 2506.03996).

    x~[t] = leak x~[t-1] + x[t]        W x~[t] is the potential H[t] without resets and bias

The least |dW x~|^2 keeps what decides over spikes; |dW x|^2 keeps the current of every single step, also
where errors of several steps would cancel out or add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ptq4snn.discovery.blocks import calls
from ptq4snn.discovery.info import RowOrder
from ptq4snn.rounding.network import Network

__all__ = ["Filter", "find_filters"]


@dataclass
class Filter:
    """Filters what one projection reads; `begin` forgets the batch before.

    rows: how the steps of a call lie in its rows; None: each call is a step.
    axes: of the input, behind its rows: channels and positions.
    """

    leak: float
    rows: RowOrder | None
    axes: int
    batch: int = 0
    last: Tensor | None = field(default=None, repr=False)

    def begin(self, batch: int) -> None:
        self.batch, self.last = batch, None

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows ..., channels, positions ...], of one shape in all calls of a batch."""
        x = x.detach()
        if self.rows is None:
            self.last = x if self.last is None else x + self.leak * self.last
            return self.last
        each, apart = self.rows.each, self.rows.apart
        flat = x.reshape(-1, *x.shape[x.dim() - self.axes :])
        steps = len(flat) // (each * self.batch)
        by_step = flat.unflatten(0, (-1, steps, apart or each * self.batch))  # [n, T, rows of a step, ...]
        found = [by_step[:, 0]]
        for t in range(1, steps):
            found.append(by_step[:, t] + self.leak * found[-1])
        return torch.stack(found, 1).reshape(x.shape)


def find_filters(network: Network, unit: tuple[str, ...]) -> dict[str, Filter]:
    """Of the unit's projections that read spikes and feed a neuron with a state, where steps can be told."""
    discovery, specs = network.folded.discovery, network.folded.specs
    often = calls(discovery.graph)
    found = {}
    for name in unit:
        info = discovery.projections[name]
        fed = [n for n in info.feeds if discovery.neurons[n].carries_state]
        if info.reads != "count" or not fed:
            continue
        steps = discovery.neurons[fed[0]].steps
        if info.rows is None and often[name] != steps:
            continue
        leak = float(torch.as_tensor(specs[fed[0]].leak, dtype=torch.float64).mean())
        found[name] = Filter(leak, info.rows, max(1, network.folded.weight(name).dim() - 1))
    return found

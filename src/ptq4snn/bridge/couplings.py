"""How the state's scale hangs on the scale of what feeds it.

bridge       s_mem,c = s_c 2^k_c           layerwise   one k for the neuron
reuse        the weight's own scale        flowq       layerwise, and one weight scale per layer
independent  own scale per channel         none        32 bits, nothing to choose
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.bridge.objective import Objective, exponent_errors
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.scales import SHRINKS
from ptq4snn.observation.statistics import ChannelStatistics

__all__ = ["ExponentTable", "NeuronView", "StateScales", "choose_scales"]


@dataclass(frozen=True)
class NeuronView:
    """What a coupling looks at; vectors [C] in float64."""

    statistics: ChannelStatistics
    theta: Tensor
    scale: Tensor  # s_c: current scale, gain included
    own: Tensor  # the folded weight's own scale
    ks: range  # admissible exponents


@dataclass(frozen=True)
class StateScales:
    scales: Tensor  # [C] s_mem
    k: Tensor | None  # [C] where s_mem = s_c 2^k


class ExponentTable:
    """Costs of all exponents for each width of one neuron, computed when first asked for."""

    def __init__(self, view: NeuronView, objective: Objective) -> None:
        self.view, self.objective = view, objective
        self.costs: dict[int, Tensor] = {}

    def cost(self, bits: int) -> Tensor:
        """[C, K]"""
        if bits not in self.costs:
            v = self.view
            self.costs[bits] = exponent_errors(self.objective, v.statistics, v.theta, v.scale, bits, v.ks)
        return self.costs[bits]

    def by_width(self, bits: Tensor) -> Tensor:
        """Cost [C, K] with every channel at its own width."""
        out = torch.empty(len(bits), len(self.view.ks), dtype=torch.float64)
        for b in bits.unique().tolist():
            out[bits == b] = self.cost(b)[bits == b]
        return out


def choose_scales(coupling: str, table: ExponentTable, bits: Tensor) -> StateScales:
    """State scales of one neuron whose channels have `bits` [C]."""
    return _COUPLINGS[coupling](table, bits)


def _bridged(view: NeuronView, index: Tensor) -> StateScales:
    k = torch.tensor(list(view.ks))[index]
    return StateScales(view.scale * torch.exp2(k.double()), k)


def bridge(table: ExponentTable, bits: Tensor) -> StateScales:
    """argmin_k per channel; of equal costs the smallest k."""
    return _bridged(table.view, table.by_width(bits).argmin(1))


def layerwise(table: ExponentTable, bits: Tensor) -> StateScales:
    """One k for all channels: the least summed cost."""
    best = table.by_width(bits).sum(0).argmin()
    return _bridged(table.view, best.expand(len(bits)))


def reuse(table: ExponentTable, bits: Tensor) -> StateScales:
    """The BN-folded weight's own scale, s_c / gain; of a stream its last writer's."""
    return StateScales(table.view.own, None)


def independent(table: ExponentTable, bits: Tensor) -> StateScales:
    """An observer of its own: the largest |V| on the last level, shrunk to the least cost."""
    view = table.view
    st = view.statistics
    top = torch.maximum(st.low.abs(), st.high.abs()).nan_to_num(posinf=0.0) * view.theta
    scales = torch.empty(len(bits), dtype=torch.float64)
    for b in bits.unique().tolist():
        full = (top / max(1, signed_range(b)[1])).clamp_min(2.0**-12 * view.theta / 2 ** (b - 1))
        candidates = full[:, None] * SHRINKS
        cost = table.objective.errors(st, view.theta, candidates, b)
        best = candidates.gather(1, len(SHRINKS) - 1 - cost.flip(1).argmin(1, keepdim=True))[:, 0]
        scales[bits == b] = best[bits == b]
    return StateScales(scales, None)


_COUPLINGS: dict[str, Callable[[ExponentTable, Tensor], StateScales]] = {
    "bridge": bridge,
    "layerwise": layerwise,
    "flowq": layerwise,
    "reuse": reuse,
    "independent": independent,
}

"""How the state's scale hangs on the scale of what feeds it.

bridge       s_mem,c = s_c 2^k_c           layerwise   one k for the neuron
reuse        the weight's own scale        flowq       layerwise, and one weight scale per layer
independent  own scale per channel         none        32 bits, nothing to choose
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ptq4snn.bridge.objective import Objective
from ptq4snn.bridge.replay import raised
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.powers import parts_of_octave
from ptq4snn.observation.channel_statistics import ChannelStatistics

__all__ = ["ExponentTable", "NeuronView", "StateScales", "choose_scales"]

# of the scale that clips nothing, twelve to an octave: at 2 bits the best is far below it
OBSERVED = parts_of_octave(12, 61, down=True)


@dataclass(frozen=True)
class NeuronView:
    """What a coupling looks at; vectors [C] in float64."""

    statistics: ChannelStatistics
    theta: Tensor
    scale: Tensor  # s_c: current scale, gain included
    own: Tensor  # the folded weight's own scale
    ks: range  # admissible exponents
    zero_points: bool = False  # levels may be shifted
    floor: Tensor | None = None  # the least state; the levels begin there


@dataclass(frozen=True)
class StateScales:
    scales: Tensor  # [C] s_mem
    k: Tensor | None  # [C] where s_mem = s_c 2^k
    zero: Tensor | None = None  # [C] by how much the levels are shifted; None: not at all


class ExponentTable:
    """Costs of all exponents for each width of one neuron, computed when first asked for."""

    def __init__(self, view: NeuronView, objective: Objective) -> None:
        self.view, self.objective = view, objective
        self.costs: dict[int, tuple[Tensor, Tensor]] = {}

    def cost(self, bits: int) -> Tensor:
        """[C, K], each with its best zero point."""
        return self._search(bits)[0]

    def _search(self, bits: int) -> tuple[Tensor, Tensor]:
        """Least cost [C, K] over the zero points, and these."""
        if bits not in self.costs:
            zeros = zero_points(bits) if self.view.zero_points else (0,)
            best = self._errors(bits, zeros).min(0)  # of equal costs the first: no shift
            self.costs[bits] = best.values, torch.tensor(zeros)[best.indices]
        return self.costs[bits]

    def _errors(self, bits: int, zeros: Sequence[int]) -> Tensor:
        """Cost [Z, C, K] of the bridged scales s_c * 2^k."""
        v = self.view
        powers = torch.exp2(torch.tensor(list(v.ks), dtype=torch.float64))
        return self.objective.errors(v.statistics, v.theta, v.scale[:, None] * powers, bits, zeros)

    def by_width(self, bits: Tensor) -> tuple[Tensor, Tensor]:
        """Cost and zero point [C, K] with every channel at its own width."""
        cost = torch.empty(len(bits), len(self.view.ks), dtype=torch.float64)
        zero = torch.zeros(len(bits), len(self.view.ks), dtype=torch.int64)
        for b in bits.unique().tolist():
            mine = bits == b
            cost[mine], zero[mine] = (found[mine] for found in self._search(b))
        return cost, zero


def zero_points(bits: int) -> tuple[int, ...]:
    """Shifts of the levels that keep 0 among them: none, a quarter, a half and all of one side."""
    lo, hi = signed_range(bits)
    return tuple(dict.fromkeys((0, -hi, -hi // 2, -lo // 2, -lo)))


def choose_scales(coupling: str, table: ExponentTable, bits: Tensor) -> StateScales:
    """State scales of one neuron whose channels have `bits` [C]."""
    found, floor = _COUPLINGS[coupling](table, bits), table.view.floor
    if floor is None:
        return found
    zero = torch.zeros_like(bits) if found.zero is None else found.zero
    lowest = zero - torch.exp2(bits.double() - 1)
    return replace(found, zero=zero + raised(floor, found.scales, lowest).long())


def _bridged(view: NeuronView, index: Tensor, zero: Tensor) -> StateScales:
    """Of the exponents `index` [C], with the zero points [C, K] that go with them."""
    k = torch.tensor(list(view.ks))[index]
    return StateScales(view.scale * torch.exp2(k.double()), k, zero.gather(1, index[:, None])[:, 0])


def bridge(table: ExponentTable, bits: Tensor) -> StateScales:
    """argmin_k per channel; of equal costs the smallest k."""
    cost, zero = table.by_width(bits)
    return _bridged(table.view, cost.argmin(1), zero)


def layerwise(table: ExponentTable, bits: Tensor) -> StateScales:
    """One k for all channels: the least summed cost."""
    cost, zero = table.by_width(bits)
    return _bridged(table.view, cost.sum(0).argmin().expand(len(bits)), zero)


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
        candidates = full[:, None] * OBSERVED
        cost = table.objective.errors(st, view.theta, candidates, b)[0]
        best = candidates.gather(1, cost.argmin(1, keepdim=True))[:, 0]  # of equal costs the largest scale
        scales[bits == b] = best[bits == b]
    return StateScales(scales, None)


_COUPLINGS: dict[str, Callable[[ExponentTable, Tensor], StateScales]] = {
    "bridge": bridge,
    "layerwise": layerwise,
    "flowq": layerwise,
    "reuse": reuse,
    "independent": independent,
}

"""Joint choice of (s_w,c, k_c) under the bits b_c of every channel, for transformers (the paper's search):

    min E_w(W_c; s) + lambda_mem E_mem(V_c; s 2^k, b_c)        both errors in shares of their energies

bridge: for each channel. layerwise: s for each channel, k for all. flowq: one s and one k a layer. The scale
of a stream is found in joint_streams.py, since several projections write to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.bridge.couplings import ExponentTable
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.bridge.projection_lattice import ProjectionLattice
from ptq4snn.bridge.weights import weight_floor
from ptq4snn.numerics.scales import SHRINKS, full_scales, shrink_errors
from ptq4snn.observation.channel_statistics import bin_edges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptq4snn.assemble import Assembly

__all__ = ["JOINT", "joint_scales", "state_energy", "state_errors"]

TINY = 1e-30
AROUND = (-1, 0, 1, 2)  # exponents that are tried, beside the best one for the weight's own scale


def joint_scales(assembly: Assembly, bits: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weight scales [C] of every projection that feeds exactly one pair of its own, under `bits`."""
    out = {}
    for p, neuron in _pairs(assembly):
        pair = Pair.of(assembly, p, assembly.tables[neuron], bits[neuron])
        out[p.info.name] = JOINT[assembly.coupling(neuron)](pair)
    return out


def _pairs(assembly: Assembly) -> Iterator[tuple[ProjectionLattice, str]]:
    """Projections with the one neuron that they feed alone, channel by channel, inside the budget."""
    for name, p in assembly.lattice.projections.items():
        if p.info.role != "pair" or len(p.info.feeds) != 1:
            continue
        if p.weight.bits is None or p.input_steps is not None:
            continue
        neuron = assembly.lattice.neurons[p.info.feeds[0]].info
        whole = torch.equal(neuron.source_channel, torch.arange(len(p.lattice)))
        if assembly.coupling(neuron.name) not in JOINT or assembly.fixed_bits(neuron.name) is not None:
            continue
        if neuron.projections == (name,) and whole:
            yield p, neuron.name


@dataclass(frozen=True)
class Pair:
    """Candidate scales [C, n] of a weight, their errors, and the neuron that they are tied to."""

    candidates: Tensor
    weight_error: Tensor  # [C, n], of the weight's energy
    chosen: Tensor  # [C] the scales that the table of exponents is built on
    table: ExponentTable
    bits: Tensor  # [C] of the state
    lambda_mem: float

    @classmethod
    def of(cls, assembly: Assembly, p: ProjectionLattice, table: ExponentTable, bits: Tensor) -> Pair:
        w = assembly.folded.weight(p.info.name).double().cpu().flatten(1)
        floor = torch.as_tensor(weight_floor(assembly.folded, p.info, p.info.factor, p.target))
        width = p.weight.bits
        assert width is not None
        if assembly.coupling(p.info.feeds[0]) == "flowq":
            floor = floor.max().expand(len(w))
            full = full_scales(w.reshape(1, -1), width, floor[:1], p.weight.odd).expand(len(w))
        else:
            full = full_scales(w, width, floor, p.weight.odd)
        candidates = torch.maximum(full[:, None] * SHRINKS, floor.expand(len(w))[:, None])
        error = shrink_errors(w, width, full, floor, p.weight.odd).T
        error = error / w.square().sum(1).clamp_min(TINY)[:, None]
        return cls(candidates, error, p.weight.scales, table, bits, assembly.recipe.lambda_mem)

    def cost(self, k: Tensor) -> Tensor:
        """[C, n] with the exponents k [C]."""
        per_scale = self.table.view.scale / self.chosen  # s_c of the neuron for one unit of weight scale
        steps = self.candidates * (per_scale * torch.exp2(k.double()))[:, None]
        return self.weight_error + self.lambda_mem * state_errors(self.table, steps, self.bits)

    def exponents(self) -> tuple[Tensor, Tensor]:
        """All that are admissible, and the place [C] of the best ones for the weight's own scales."""
        return torch.tensor(list(self.table.view.ks)), self.table.by_width(self.bits)[0].argmin(1)

    def common(self) -> list[Tensor]:
        """Exponents that all channels might share, each as [C]."""
        ks, best = self.exponents()
        low, high = max(0, int(best.min()) + AROUND[0]), min(len(ks) - 1, int(best.max()) + AROUND[-1])
        return [ks[i].expand(len(best)) for i in range(low, high + 1)]


def _by_channel(pair: Pair) -> Tensor:
    ks, best = pair.exponents()
    costs = torch.stack([pair.cost(ks[(best + i).clamp(0, len(ks) - 1)]) for i in AROUND])  # [4, C, n]
    return _taken(pair, costs.amin(0).argmin(1))


def _by_layer(pair: Pair) -> Tensor:
    costs = min((pair.cost(k) for k in pair.common()), key=lambda c: float(c.amin(1).sum()))
    return _taken(pair, costs.argmin(1))


def _one_scale(pair: Pair) -> Tensor:
    costs = torch.stack([pair.cost(k).sum(0) for k in pair.common()])  # [K, n]
    return _taken(pair, costs.amin(0).argmin().expand(len(pair.chosen)))


def _taken(pair: Pair, index: Tensor) -> Tensor:
    return pair.candidates.gather(1, index[:, None])[:, 0]


JOINT = {"bridge": _by_channel, "layerwise": _by_layer, "flowq": _one_scale}  # couplings that have a search


def state_errors(table: ExponentTable, steps: Tensor, bits: Tensor) -> Tensor:
    """Squared error [C, n] of states with `bits` [C] for the steps [C, n], in shares of their energy."""
    view = table.view
    out = torch.empty_like(steps)
    for b in bits.unique().tolist():
        found = SquaredError().error(view.statistics, view.theta, steps, b)
        out[bits == b] = found[bits == b]
    return out / state_energy(table).clamp_min(TINY)[:, None]


def state_energy(table: ExponentTable) -> Tensor:
    """Mean square of the recorded states [C]."""
    view = table.view
    histogram = view.statistics.histogram.double()
    inner, outer = bin_edges()
    middle = (inner + outer) / 2
    share = histogram / histogram.sum(1, keepdim=True).clamp_min(1)
    return (share * middle.square()).sum(1) * view.theta.square()

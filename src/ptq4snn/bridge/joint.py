"""Joint choice of (s_w,c, k_c) for transformers: min E_w(s) + lambda_mem E_mem(s 2^k) per channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.bridge.couplings import ExponentTable
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.bridge.weights import weight_floor
from ptq4snn.numerics.scales import SHRINKS, full_scales, shrink_errors
from ptq4snn.observation.channel_statistics import bin_edges
from ptq4snn.recipe import Recipe

if TYPE_CHECKING:
    from ptq4snn.assemble import Assembly

__all__ = ["joint_scales"]

TINY = 1e-30


def joint_scales(assembly: Assembly) -> dict[str, Tensor]:
    """Weight scales [C] of every projection that feeds exactly one pair of its own."""
    out = {}
    neurons = assembly.lattice.neurons
    for name, p in assembly.lattice.projections.items():
        if (
            p.info.role != "pair"
            or len(p.info.feeds) != 1
            or p.weight.bits is None
            or p.input_steps is not None
        ):
            continue
        neuron = neurons[p.info.feeds[0]]
        whole = torch.equal(neuron.info.source_channel, torch.arange(len(p.lattice)))
        fixed = assembly.fixed_bits(neuron.info.name)
        if neuron.info.projections != (name,) or not whole or fixed is not None:
            continue
        weight = assembly.folded.weight(name).double().cpu()
        floor = torch.as_tensor(weight_floor(assembly.folded, p.info, p.info.factor, p.target))
        table = assembly.tables[neuron.info.name]
        out[name] = _choose(table, weight, p.weight.bits, p.weight.scales, floor, assembly.recipe)
    return out


def _choose(
    table: ExponentTable, weight: Tensor, bits: int, chosen: Tensor, floor: Tensor, recipe: Recipe
) -> Tensor:
    """Scales [C] >= floor of weight [C, ...]; `chosen` are the weight's own, which the table is built on."""
    view = table.view
    w = weight.flatten(1)
    width = round(recipe.membrane) if recipe.membrane in (2, 4, 8) else 4
    full = full_scales(w, bits, floor)
    candidates = torch.maximum(full[:, None] * SHRINKS, floor[:, None])  # [C, 61]
    energy = w.square().sum(1).clamp_min(TINY)
    weight_error = shrink_errors(w, bits, full, floor).T / energy[:, None]  # [C, 61]
    state = state_energy(table).clamp_min(TINY)
    best_k = table.cost(width).argmin(1)
    ks = torch.tensor(list(view.ks))
    best = torch.full((len(w),), torch.inf, dtype=torch.float64)
    scales = chosen.clone()
    per_scale = view.scale / chosen  # s_c of the neuron for one unit of weight scale
    for offset in (-1, 0, 1, 2):
        k = ks[(best_k + offset).clamp(0, len(ks) - 1)].double()
        steps = candidates * per_scale[:, None] * torch.exp2(k)[:, None]
        cost = weight_error + recipe.lambda_mem * (
            SquaredError().errors(view.statistics, view.theta, steps, width) / state[:, None]
        )
        value, index = cost.min(1)
        better = value < best
        best = torch.where(better, value, best)
        scales = torch.where(better, candidates.gather(1, index[:, None])[:, 0], scales)
    return scales


def state_energy(table: ExponentTable) -> Tensor:
    """Mean square of the recorded states [C]."""
    view = table.view
    histogram = view.statistics.histogram.double()
    inner, outer = bin_edges()
    middle = (inner + outer) / 2
    share = histogram / histogram.sum(1, keepdim=True).clamp_min(1)
    return (share * middle.square()).sum(1) * view.theta.square()

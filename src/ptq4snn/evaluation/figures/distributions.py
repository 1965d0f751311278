"""Weights and float states of three channels of a pair, in theta, with the grids they were brought to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.weights import per_channel
from ptq4snn.evaluation.figures.common import Data, evenly, in_budget, theta_of
from ptq4snn.evaluation.figures.histograms import bins_of, quantiles, rebin, share_outside
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.numerics.grid import signed_range

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["distributions"]

PAIRS = 24
WEIGHT_BINS, STATE_BINS = 32, 48
SHARES = {"narrow": 0.1, "middle": 0.5, "wide": 0.9}  # which channels, ranked by their range of states
ENDS = (0.001, 0.999)  # quantiles of the states that must be seen
WIDEST = 2.5  # axis over states: shows the whole grid of states on one side of zero, but never mostly grid


def distributions(prepared: Prepared, assembly: Assembly, plan: Plan) -> Data | None:
    """None where there is no pair inside the budget."""
    infos = prepared.folded.discovery.neurons
    names = [n for n in in_budget(plan) if infos[n].kind == "pair" and len(infos[n].projections) == 1]
    chosen = [names[i] for i in evenly(len(names), PAIRS)]
    rows = [r for n in chosen for r in _pair(prepared, assembly, plan, n)]
    return {"units": "theta", "rows": rows} if rows else None


def _pair(prepared: Prepared, assembly: Assembly, plan: Plan, name: str) -> list[Data]:
    """Three channels of one neuron."""
    folded, n = prepared.folded, plan.neurons[name]
    info, projection = folded.discovery.neurons[name], folded.discovery.neurons[name].projections[0]
    theta = theta_of(assembly.lattice.neurons[name])
    per_weight = per_channel(folded, name, folded.specs[name].gain, "gain").cpu() / theta
    statistics = prepared.seen.neurons[name]
    reach = torch.maximum(statistics.low.abs(), statistics.high.abs())
    order = reach.argsort(stable=True).tolist()
    rows = []
    for which, share in SHARES.items():
        c = order[int(share * (len(order) - 1))]
        source, factor = int(info.source_channel[c]), float(per_weight[c])
        weight = folded.weight(projection)[source].double().flatten().cpu() * factor
        w = plan.projections[projection]
        step = n.scales[c] / float(theta[c])
        rows.append(
            {
                "neuron": name, "channel": c, "which": which, "bits": n.bits[c], "zero": n.zero[c],
                "k": n.k[c], "scale": step, "weight_bits": w.bits,
                "weight_scale": None if w.bits is None else w.scales[source] * factor,
                "weights": bins_of(weight, WEIGHT_BINS),
                **_states(statistics.histogram[c], n, c, step),
                "largest_weight": float(weight.abs().max()), "largest_state": float(reach[c]),
            }
        )  # fmt: skip
    return rows


def _states(histogram: Tensor, n: NeuronPlan, c: int, step: float) -> Data:
    """The float states of a channel in linear bins, and how many of them the grid does not reach."""
    low, high = (step * (n.zero[c] + level) for level in signed_range(n.bits[c]))
    least, most = quantiles(histogram, ENDS)
    a, b = min(least, low), max(most, high)
    if b - a > WIDEST * (most - least) > 0:
        a, b = least, most
    return {
        "states": rebin(histogram, a, b, STATE_BINS),
        "outside": share_outside(histogram, low - step / 2, high + step / 2),
    }

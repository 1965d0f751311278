"""Exponents k of all channels in the budget, and some of their scales beside those of an observer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor

from ptq4snn.assemble import Assembly
from ptq4snn.bridge.couplings import ExponentTable, choose_scales
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.evaluation.figures.common import Data, evenly, in_budget, theta_of
from ptq4snn.network.plan import Plan

__all__ = ["bridge_analysis"]

OBSERVED = 1000  # rows at most: a search each, about a millisecond
SHIFTED = ("bridge", "layerwise", "flowq")  # couplings whose scales are powers of two apart


def bridge_analysis(assembly: Assembly, plan: Plan) -> Data | None:
    """None where no scale in the budget is coupled by a shift."""
    neurons = {n: p for n, p in in_budget(plan).items() if p.coupling in SHIFTED}
    channels = [(n, c) for n, p in neurons.items() for c in range(p.channels)]
    if not channels:
        return None
    shown: dict[str, list[int]] = {}
    for i in evenly(len(channels), OBSERVED):
        shown.setdefault(channels[i][0], []).append(channels[i][1])
    rows = []
    for name, some in shown.items():
        p, theta = neurons[name], theta_of(assembly.lattice.neurons[name]).tolist()
        observed = observer_scales(assembly, name, torch.tensor(some), torch.tensor(p.bits)).tolist()
        rows += [
            {
                "neuron": name, "channel": c, "bits": p.bits[c], "k": p.k[c],
                "bridged": p.scales[c] / theta[c], "observer": scale / theta[c],
            }
            for c, scale in zip(some, observed, strict=True)
        ]  # fmt: skip
    ratios = [r["bridged"] / r["observer"] for r in rows if r["observer"] > 0]
    ks = Counter(k for p in neurons.values() for k in p.k if k is not None)
    return {
        "k": {str(k): ks[k] for k in sorted(ks)},
        "channels": len(channels),
        "median_ratio": median(ratios) if ratios else None,
        "within_factor_2": sum(0.5 <= r <= 2 for r in ratios) / len(ratios) if ratios else None,
        "rows": rows,
    }


def observer_scales(assembly: Assembly, name: str, some: Tensor, bits: Tensor) -> Tensor:
    """What coupling "independent" would choose, by squared error and without zero points, for `some` channels
    of a neuron whose widths are bits [C]."""
    view = assembly.tables[name].view
    st = view.statistics
    few = replace(
        st, histogram=st.histogram[some], low=st.low[some], high=st.high[some], current=st.current[some],
        spikes=st.spikes[some],
    )  # fmt: skip
    part = replace(view, statistics=few, theta=view.theta[some], scale=view.scale[some], own=view.own[some])
    return choose_scales("independent", ExponentTable(part, SquaredError()), bits[some]).scales

"""What only torch can tell of the figures, and their data, computed once, when a model is quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ptq4snn.allocation.budget import ranking
from ptq4snn.allocation.mixed import Candidates
from ptq4snn.allocation.scores import scores
from ptq4snn.allocation.search import Trial
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.couplings import ExponentTable, choose_scales
from ptq4snn.bridge.objective import SquaredError
from ptq4snn.bridge.weights import per_channel
from ptq4snn.cost.traffic import PlanCost
from ptq4snn.network.plan import Plan
from ptq4snn.observation.histograms import bins_of, quantiles, rebin, share_outside
from ptq4snn.report.figures import (
    allocation,
    bridge_analysis,
    distributions,
    membrane_cost,
    memory,
    segmentation,
    sweep,
)
from ptq4snn.report.figures.allocation import Ranked
from ptq4snn.report.figures.common import in_budget, rounded
from ptq4snn.report.figures.distributions import Pair
from ptq4snn.schema.figure_types import AllocationData, Bins, BridgeData, DistributionsData, Figures

if TYPE_CHECKING:
    from ptq4snn.evaluation.fidelity import Fidelity
    from ptq4snn.prepared import Prepared

__all__ = ["allocation_data", "bridge_data", "distributions_data", "make_figures"]


def make_figures(
    prepared: Prepared, assembly: Assembly, plan: Plan, found: Fidelity, trials: Sequence[Trial],
    cost: PlanCost,
) -> Figures:  # fmt: skip
    """Data by the figure's name; a figure that does not apply is left out."""
    weights = sum(p.weight.kept.numel() for p in assembly.lattice.projections.values())
    made = {
        "membrane-cost": membrane_cost.data(prepared.folded.discovery, weights, cost),
        "memory": memory.data(cost.resident),
        "distributions": distributions_data(prepared, assembly, plan),
        "bridge-analysis": bridge_data(assembly, plan),
        "allocation": allocation_data(prepared, assembly, plan),
        "sweep": sweep.data(trials),
        "segmentation": None if found.examples is None else segmentation.data(found.examples),
    }
    return cast(Figures, {name: rounded(data) for name, data in made.items() if data is not None})


def thetas(assembly: Assembly, name: str) -> Tensor:
    """The unit [C] of a neuron's states and scales; a threshold of zero is none."""
    theta = assembly.lattice.neurons[name].theta
    return theta.where(theta > 0, 1.0)


def bridge_data(assembly: Assembly, plan: Plan) -> BridgeData | None:
    def observer(name: str, some: Sequence[int]) -> list[float]:
        bits = torch.tensor(plan.neurons[name].bits)
        found: list[float] = observer_scales(assembly, name, torch.tensor(some), bits).tolist()
        return found

    return bridge_analysis.data(plan, lambda name: thetas(assembly, name).tolist(), observer)


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


def allocation_data(prepared: Prepared, assembly: Assembly, plan: Plan) -> AllocationData | None:
    """Rates and sensitivities are those that the search used."""
    if plan.beta is None or not in_budget(plan):
        return allocation.data(plan, [])
    found = Candidates.of(prepared, assembly)
    score = scores(found.rate, found.sensitivity, plan.beta)
    channels = [(n, c) for n, size in zip(found.names, found.sizes, strict=True) for c in range(size)]
    columns = (score.tolist(), found.rate.tolist(), found.sensitivity.tolist())
    ranked = [Ranked(*channels[i], *(column[i] for column in columns)) for i in ranking(score).tolist()]
    return allocation.data(plan, ranked)


@dataclass(frozen=True)
class _Channel:
    """A channel of a pair; in theta."""

    weight: Tensor  # [n]
    histogram: Tensor  # [BINS] of the states
    source: int
    per_weight: float

    @property
    def largest_weight(self) -> float:
        return float(self.weight.abs().max())

    def weights(self, bins: int) -> Bins:
        return bins_of(self.weight, bins)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        return quantiles(self.histogram, shares)

    def states(self, low: float, high: float, bins: int) -> Bins:
        return rebin(self.histogram, low, high, bins)

    def outside(self, low: float, high: float) -> float:
        return share_outside(self.histogram, low, high)


def distributions_data(prepared: Prepared, assembly: Assembly, plan: Plan) -> DistributionsData | None:
    folded, infos = prepared.folded, prepared.folded.discovery.neurons
    names = [n for n in in_budget(plan) if infos[n].kind == "pair" and len(infos[n].projections) == 1]

    def pair(name: str) -> Pair:
        (projection,), theta = infos[name].projections, thetas(assembly, name)
        per_weight = per_channel(folded, name, folded.specs[name].gain, "gain").cpu() / theta
        statistics = prepared.seen.neurons[name]

        def channel(c: int) -> _Channel:
            source, factor = int(infos[name].source_channel[c]), float(per_weight[c])
            weight = folded.weight(projection)[source].double().flatten().cpu() * factor
            return _Channel(weight, statistics.histogram[c], source, factor)

        reach = torch.maximum(statistics.low.abs(), statistics.high.abs())
        return Pair(projection, theta.tolist(), reach.tolist(), channel)

    return distributions.data(plan, names, pair)

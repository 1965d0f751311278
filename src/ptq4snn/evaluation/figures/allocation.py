"""Channels in the budget by their score, and the states of each width in every stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptq4snn.allocation.budget import ranking
from ptq4snn.allocation.mixed import Candidates
from ptq4snn.allocation.scores import scores
from ptq4snn.assemble import Assembly
from ptq4snn.cost.neuron_facts import stages_of
from ptq4snn.evaluation.figures.common import ROWS, Data, evenly, in_budget
from ptq4snn.network.plan import NeuronPlan, Plan

if TYPE_CHECKING:
    from ptq4snn.prepare import Prepared

__all__ = ["allocation"]


def allocation(prepared: Prepared, assembly: Assembly, plan: Plan) -> Data | None:
    """None where nothing is in the budget; without rows where no score decided."""
    neurons = in_budget(plan)
    if not neurons:
        return None
    stages = stages_of(plan.neurons)
    return {
        "by": "uniform" if not plan.mixed else "benefit" if plan.beta is None else "mpba",
        "beta": plan.beta,
        "percentile": plan.percentile,
        "average_bits": plan.average_bits(),
        "stages": _composition(neurons, stages),
        "rows": [] if plan.beta is None else _ranking(prepared, assembly, plan, plan.beta, stages),
    }


def _ranking(
    prepared: Prepared, assembly: Assembly, plan: Plan, beta: float, stages: dict[str, str]
) -> list[Data]:
    """Channels from the highest score on; rates and sensitivities are those that the search used."""
    found = Candidates.of(prepared, assembly)
    score = scores(found.rate, found.sensitivity, beta)
    order = ranking(score).tolist()
    channels = [(n, c) for n, size in zip(found.names, found.sizes, strict=True) for c in range(size)]
    rows = []
    for rank in evenly(len(order), ROWS):
        i = order[rank]
        name, c = channels[i]
        rows.append(
            {
                "rank": rank + 1, "neuron": name, "channel": c, "stage": stages[name],
                "score": float(score[i]), "rate": float(found.rate[i]),
                "sensitivity": float(found.sensitivity[i]), "bits": plan.neurons[name].bits[c],
                "elements": plan.neurons[name].elements,
            }
        )  # fmt: skip
    return rows


def _composition(neurons: dict[str, NeuronPlan], stages: dict[str, str]) -> dict[str, dict[str, float]]:
    """Share of the states of each width, by stage in the order of the network."""
    total: dict[str, dict[int, int]] = {}
    for name, n in neurons.items():
        widths = total.setdefault(stages[name], {})
        for b in n.bits:
            widths[b] = widths.get(b, 0) + n.elements
    return {s: {str(b): w[b] / sum(w.values()) for b in sorted(w)} for s, w in total.items()}

"""The part of a report that a plan alone knows: nothing in it was measured."""

from __future__ import annotations

from collections.abc import Mapping

from ptq4snn.cost.accounting import WeightCost, is_mixed, resident_states, state_cost, weight_cost
from ptq4snn.cost.neuron_facts import neuron_facts, stages_of, state_bytes, weight_bytes
from ptq4snn.network.plan import Plan
from ptq4snn.schema.report_types import Report, Summary

__all__ = ["report_of_plan"]


def report_of_plan(plan: Plan, weights: Mapping[str, int] | None = None) -> Report:
    """A report without measurements. weights: how many each projection has; None leaves out their bytes."""
    cost = state_cost(resident_states(plan), is_mixed(plan))
    summary: Summary = {
        "recipe": plan.recipe,
        "beta": plan.beta,
        "percentile": plan.percentile,
        "arithmetic": plan.arithmetic,
        "steps": plan.steps,
        "average_bits": plan.average_bits(),
        "average_bits_all": cost.average_bits,
        "state_bytes": state_bytes(cost),
        "state_energy": cost.energy,
        "state_words": {"m32": cost.m32_words, "packed": cost.words},
        "channels": sum(n.channels for n in plan.neurons.values()),
    }
    if weights is not None:
        each = (weight_cost(p, weights[n]) for n, p in plan.projections.items())
        summary["weight_bytes"] = weight_bytes(sum(each, WeightCost()))
    stages = stages_of(plan.neurons)
    neurons = [neuron_facts(n, stages[name]) for name, n in plan.neurons.items()]
    return {"summary": summary, "neurons": neurons}

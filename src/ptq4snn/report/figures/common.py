"""What the figures share: which rows are shown, which neurons count, how numbers are written."""

from __future__ import annotations

from typing import Any

from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.schema.report_types import Report

__all__ = ["NOTHING", "allocated_by", "evenly", "in_budget", "rounded"]

DIGITS = 6  # significant ones of a number
NOTHING = "there is no channel inside the budget"


def evenly(count: int, limit: int) -> list[int]:
    """At most `limit` of the numbers below `count`, evenly, with the first and the last."""
    if count <= limit:
        return list(range(count))
    if limit == 1:
        return [0]
    return [i * (count - 1) // (limit - 1) for i in range(limit)]


def in_budget(plan: Plan) -> dict[str, NeuronPlan]:
    """The neurons whose states were quantized under the budget."""
    return {n: p for n, p in plan.neurons.items() if p.in_budget and p.coupling != "none"}


def rounded(x: Any) -> Any:
    """The same value with floats of few digits: they are drawn, not computed with."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [rounded(v) for v in x]
    return float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x


def allocated_by(report: Report) -> str:
    """How the bits of a run were given, in a word."""
    found = report["figures"].get("allocation")
    return found.get("by", "not known") if found else "not known"

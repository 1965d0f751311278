"""What the figures share: which rows are shown, which neurons count, how numbers are written."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ptq4snn.bridge.lattice import NeuronLattice
from ptq4snn.network.plan import NeuronPlan, Plan

__all__ = ["ROWS", "Data", "evenly", "in_budget", "rounded", "theta_of"]

ROWS = 2000  # of a figure at most
DIGITS = 6  # significant ones of a number

Data = dict[str, Any]


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


def theta_of(n: NeuronLattice) -> Tensor:
    """The unit [C] of states and scales; a threshold of zero is none."""
    return n.theta.where(n.theta > 0, 1.0)


def rounded(x: Any) -> Any:
    """The same value with floats of few digits: they are drawn, not computed with."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [rounded(v) for v in x]
    return float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x

"""What the rules share: operands, quanta, and what they refuse to read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ptq4snn.discovery import calls
from ptq4snn.discovery.graph import Node, Ref
from ptq4snn.lowering.tracked import Constant, Fact, Refused, Tracked

if TYPE_CHECKING:
    from ptq4snn.lowering.lower import Lowering
    from ptq4snn.network.plan import NeuronPlan, ProjectionPlan

__all__ = [
    "complete",
    "first_argument",
    "joined_kind",
    "number_of",
    "operands",
    "quantum",
    "times",
    "tracked",
]

WHOLE = 1e-9  # a ratio this near to an integer is one


def first_argument(node: Node) -> int:
    """The first tensor that a module is called with."""
    return next(a.value for a in (*node.args, *node.kwargs.values()) if isinstance(a, Ref))


def operands(node: Node, facts: list[Fact]) -> list[Fact]:
    """The two operands; literals become constants."""
    by_value = dict(zip(node.inputs, facts, strict=True))
    return [by_value[a.value] if isinstance(a, Ref) else Constant(a) for a in calls.operands(node)]


def tracked(fact: Fact) -> Tracked:
    """Integers; also the input, and sums that are not complete."""
    if isinstance(fact, Constant):
        raise Refused("reads a constant")
    if fact.kind == "potential":
        raise Refused(f"computes with the real numbers of '{fact.name}'")
    if fact.kind == "real":
        raise Refused(
            f"computes with the real numbers of '{fact.name}', which leave the integers for an operation "
            "like softmax; return what is in front of it"
        )
    return fact


def complete(fact: Fact) -> Tracked:
    """Integers of the program."""
    x = tracked(fact)
    if x.summed is not None:
        raise Refused("reads a sum of some of the time steps only")
    if x.kind == "data":
        raise Refused("computes with the input; prepare it outside of the model")
    return x


def number_of(fact: Constant) -> float:
    if fact.value is None:
        raise Refused("computes with a tensor of constants")
    return fact.value


def quantum(w: Lowering, x: Tracked) -> Fraction:
    """Carrier over integer, at the steps of calibration."""
    return x.factor / Fraction(w.plan.steps) ** x.per_steps


def joined_kind(*facts: Tracked) -> str:
    return "current" if any(f.kind == "current" for f in facts) else "count"


def times(w: Lowering, x: Tracked, plan: ProjectionPlan | NeuronPlan) -> int:
    """How many of the integers that the plan counts one of x is."""
    ratio = float(quantum(w, x)) / plan.quantum
    if abs(ratio - round(ratio)) > WHOLE * max(1.0, abs(ratio)) or round(ratio) == 0:
        raise Refused(f"reads multiples of {float(x.factor):g}, its plan counts {plan.quantum:g}")
    return round(ratio)

"""Bytes of weights and states against the batch size, and of state traffic against T at batch 1.

The paper's curves: weights of convolutions and linear layers ideally packed to 4 bits, all states at 32 or 4
bits; a step reads and writes every state once. `this` is the plan: packed, padded, with its metadata.
"""

from __future__ import annotations

from ptq4snn.cost.accounting import WORD, stream_bytes
from ptq4snn.cost.traffic import PlanCost, ideal_bytes, moved_words
from ptq4snn.discovery.discover import Discovery
from ptq4snn.evaluation.figures.common import Data

__all__ = ["ideal_rows", "membrane_cost"]

BATCHES, STEPS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)
NARROW, WIDE = 4, 32


def membrane_cost(discovery: Discovery, weights: int, plan: PlanCost | None = None) -> Data:
    """weights: number of weights of all projections."""
    sizes = {n: i.layout.channels * i.layout.elements for n, i in discovery.neurons.items()}
    states = sum(sizes.values())
    data: Data = {
        "weights": weights,
        "states": states,
        "carried_states": sum(sizes[n] for n, i in discovery.neurons.items() if i.carries_state),
        "stream_bytes": stream_bytes(discovery),
    }
    rows = ideal_rows(weights, states)
    if plan is not None:
        packed = plan.resident.packed
        data["weight_bytes"] = packed.weights + packed.constants
        rows = [{**r, "this": _this(r, plan), "logical": _logical(r, plan)} for r in rows]
    return {**data, "rows": rows}


def ideal_rows(weights: int, states: int) -> list[Data]:
    """The paper's curves."""
    w4, m32, m4 = (ideal_bytes(n, bits) for n, bits in ((weights, NARROW), (states, WIDE), (states, NARROW)))
    storage = [
        {"axis": "batch", "value": b, "weights": w4, "m32": w4 + b * m32, "m4": w4 + b * m4} for b in BATCHES
    ]
    volume = [{"axis": "T", "value": t, "weights": None, "m32": 2 * t * m32, "m4": 2 * t * m4} for t in STEPS]
    return [*storage, *volume]


def _this(row: Data, plan: PlanCost) -> int:
    """Bytes of the plan at the row's batch size or T."""
    if row["axis"] == "batch":
        return plan.resident.packed.at(row["value"])
    return moved_words(plan.state, row["value"]) * WORD // 8


def _logical(row: Data, plan: PlanCost) -> int:
    """The same without padding, and for T without metadata."""
    if row["axis"] == "batch":
        return plan.resident.logical.at(row["value"])
    return 2 * int(row["value"]) * plan.state.logical

"""From a model to a native plan: formats by proven bounds, fusions, tap tables, places in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.program import Delay
from ptq4snn.runtime.native.blob import Blob
from ptq4snn.runtime.native.draft import Draft
from ptq4snn.runtime.native.layout import Kind, NativeOp
from ptq4snn.runtime.native.placement import place, set_regions
from ptq4snn.runtime.native.rules import RULES, delay_state
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.stepwise import stepwise

__all__ = ["NativePlan", "plan_model"]


@dataclass(frozen=True)
class NativePlan:
    """`states` and `kept` are the numbers of values, by their order in a call."""

    block: NDArray[np.uint8]
    operations: tuple[tuple[str, str], ...]  # name and kind, in the order of the counters
    states: tuple[int, ...]
    kept: tuple[int, ...]
    goes_round: bool  # it has loops, and so needs states


def plan_model(model: Model, keep: Iterable[int]) -> NativePlan:
    """The plan of a model whose values `keep` can be asked for."""
    keep = frozenset(keep)
    laid = stepwise(model, keep)
    outside = {v: laid.outside.get(v, v) for v in keep}
    draft = Draft(laid.model, frozenset(outside.values()))
    begins = {loop.start: number for number, loop in enumerate(laid.loops)}
    ends = {loop.stop - 1: loop for loop in laid.loops}
    for i, op in enumerate(laid.model.program.operations):
        if i in begins:
            draft.begin_loop(begins[i])
        RULES[type(op)](draft, op)
        if i in ends:
            draft.end_loop(_stores(draft, ends[i]))
    values = draft.used()
    set_regions(values, draft.operations)
    head: dict[str, Any] = {"states": len(draft.states), "kept": len(draft.kept)}
    head |= {"numbers": prod(model.program.input.shape)} | place(values, draft.operations)
    block = Blob().write(values, draft.operations, head)
    names = tuple((op.name, op.kind.name.lower()) for op in draft.operations)
    asked = {number: v for v, number in outside.items()}
    return NativePlan(
        block, names, tuple(draft.states), tuple(asked[v] for v in draft.kept), bool(laid.loops)
    )


def _stores(draft: Draft, loop: range) -> list[NativeOp]:
    """What goes round is stored behind the last operation of a step."""
    inside = draft.model.program.operations[loop.start : loop.stop]
    return [
        NativeOp(Kind.STORE_STATE, sources=op.inputs, name=op.name, **delay_state(draft, op))
        for op in inside
        if isinstance(op, Delay)
    ]

"""From a model to a native plan: formats by proven bounds, fusions, tap tables, places in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.runtime.native.blob import Blob
from ptq4snn.runtime.native.draft import Draft
from ptq4snn.runtime.native.placement import place, set_regions
from ptq4snn.runtime.native.rules import RULES
from ptq4snn.runtime.parameters import Model

__all__ = ["NativePlan", "plan_model"]


@dataclass(frozen=True)
class NativePlan:
    """`states` and `kept` are the numbers of values, by their order in a call."""

    block: NDArray[np.uint8]
    operations: tuple[tuple[str, str], ...]  # name and kind, in the order of the counters
    states: tuple[int, ...]
    kept: tuple[int, ...]


def plan_model(model: Model, keep: Iterable[int]) -> NativePlan:
    """The plan of a model whose values `keep` can be asked for."""
    draft = Draft(model, frozenset(keep))
    for op in model.program.operations:
        RULES[type(op)](draft, op)
    values = draft.used()
    set_regions(values, draft.operations)
    head: dict[str, Any] = {"states": len(draft.states), "kept": len(draft.kept)}
    head |= {"numbers": prod(model.program.input.shape)} | place(values, draft.operations)
    block = Blob().write(values, draft.operations, head)
    names = tuple((op.name, op.kind.name.lower()) for op in draft.operations)
    return NativePlan(block, names, tuple(draft.states), tuple(draft.kept))

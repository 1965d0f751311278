"""Bytes of one sample by what holds them, before (float32) and after."""

from __future__ import annotations

from ptq4snn.cost.traffic import Resident, Residents
from ptq4snn.evaluation.figures.common import Data

__all__ = ["memory"]


def memory(found: Residents) -> Data:
    def parts(r: Resident) -> dict[str, int]:
        return {
            "weights": r.weights, "scales and biases": r.constants, "states": r.states,
            "metadata": r.metadata, "stream buffers": r.streams,
        }  # fmt: skip

    before, after = parts(found.before), parts(found.packed)
    return {"rows": [{"part": p, "before": before[p], "after": after[p]} for p in before]}

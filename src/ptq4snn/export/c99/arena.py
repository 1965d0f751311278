"""One arena for all values of a step: those that live at different times share their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ptq4snn.export.c99.plan import ALIGN, Plan
from ptq4snn.export.c99.storage import Place
from ptq4snn.network.program import Delay, Program
from ptq4snn.runtime.stepwise import made_by

__all__ = ["lay_out"]


@dataclass(frozen=True)
class Life:
    place: Place
    begin: int
    end: int  # the last group that reads it


def lay_out(plan: Plan, program: Program) -> None:
    """Give every place of the arena its offset: the largest first, each as low as it can be."""
    lives = sorted(_lives(plan, program), key=lambda x: (-x.place.bytes, x.begin))
    laid: list[Life] = []
    for life in lives:
        others = sorted(
            (x.place.offset, x.place.offset + x.place.bytes)
            for x in laid
            if x.begin <= life.end and life.begin <= x.end
        )
        offset = 0
        for begin, end in others:
            if offset + life.place.bytes <= begin:
                break
            offset = max(offset, -(-end // ALIGN) * ALIGN)
        life.place.offset = offset
        laid.append(life)
    plan.arena = max((x.place.offset + x.place.bytes for x in laid), default=0)


def _lives(plan: Plan, program: Program) -> list[Life]:
    at = {i: n for n, g in enumerate(plan.groups) for i in g.members}
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for n, group in enumerate(plan.groups):
        for v in made_by(program.operations[group.root]):
            begin[v] = end[v] = n
    for i, op in enumerate(program.operations):
        for v in op.inputs:
            if v in end and not isinstance(op, Delay):
                end[v] = max(end[v], at[i])
    for root, delays in plan.store_delays.items():
        for op in delays:
            v = op.inputs[0]
            end[v] = max(end[v], at[root])
    lives = [
        Life(plan.places[v], begin[v], end[v]) for v in begin if plan.places[v].kind in ("packed", "whole")
    ]
    for n, group in enumerate(plan.groups):
        lives += [Life(place, n, n) for place in group.scratch.values()]
    return lives

"""What the writers of all operations share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptq4snn.export.c99.helpers import Helpers
from ptq4snn.export.c99.plan import Group, Plan
from ptq4snn.export.c99.storage import Place
from ptq4snn.export.c99.text import Tables, given, loop, uses
from ptq4snn.export.c99.weights import Packed, pack_weights
from ptq4snn.network.index import Window
from ptq4snn.network.program import Project, Value
from ptq4snn.runtime.parameters import Model

__all__ = ["Context", "taps"]


@dataclass
class Context:
    name: str
    model: Model
    plan: Plan
    tables: Tables
    helpers: Helpers
    paths: dict[str, str]  # of projections: "event" or "dense"
    weights: dict[str, tuple[str, Packed]] = field(default_factory=dict)  # symbol and words
    wide: set[str] = field(default_factory=set)  # names of operations that need 64 bits

    def packed(self, op: Project) -> tuple[str, Packed]:
        if op.name not in self.weights:
            symbol = f"{self.name}_w{len(self.weights)}"
            self.weights[op.name] = symbol, pack_weights(self.model.projections[op.name], op)
        return self.weights[op.name]

    def read(self, group: Group, v: int, p: str, c: str) -> str:
        """An element of a value: what the group has just made, or what is stored."""
        inner = {self.model.program.operations[i].output for i in group.members[:-1]}
        if v in inner:
            return f"y{v}"
        place = self.plan.places[v]
        return place.read("0" if place.value.positions == 1 else p, c)

    def is_wide(self, v: int) -> bool:
        return self.plan.places[v].wide

    def scratch(self, group: Group, key: str, kind: str, count: int) -> Place:
        """Room for `count` numbers while the group runs."""
        if key not in group.scratch:
            group.scratch[key] = Place(Value(1, count, False), 0, 0, "whole", kind)
        return group.scratch[key]

    def place2(self, values: Any, channels: int, p: str, c: str, note: str) -> str:
        """An expression of p and c for numbers [positions * channels]: a sum of both where it is one."""
        grid = np.asarray(values, dtype=np.int64).reshape(-1, channels)
        rows, columns = grid[:, 0], grid[0] - grid[0, 0]
        if np.array_equal(grid, rows[:, None] + columns) and columns.min() >= 0:
            parts = []
            if len(rows) > 1 and (rows != rows[0]).any():
                parts.append(self.tables.at(rows, p, f"{note}, by position"))
            elif rows[0]:
                parts.append(f"{rows[0]}U")
            if columns.any():
                parts.append(self.tables.at(columns, c, f"{note}, by channel"))
            return " + ".join(parts) or "0U"
        at = c if len(rows) == 1 else f"{p} * {channels}U + {c}"
        return f"(uint32_t){self.tables.table(grid, note)}[{at}]"


def taps(w: Window, body: list[str]) -> list[str]:
    """`body` for every tap of the window at o0, o1 ... that is inside: q is its position, k its number."""
    rank = len(w.size)
    q = k = ""
    for d in range(rank):
        q = f"i{d}" if d == 0 else f"({q}) * {w.size[d]}U + i{d}"
        k = f"k{d}" if d == 0 else f"({k}) * {w.kernel[d]}U + k{d}"
    lines = given("q", q or "0", given("k", k or "0", body))
    for d in reversed(range(rank)):
        terms = [f"o{d}" if w.stride[d] == 1 else f"o{d} * {w.stride[d]}U"]
        terms.append(f"k{d}" if w.dilation[d] == 1 else f"k{d} * {w.dilation[d]}U")
        at = " + ".join(terms) + (f" - {w.before[d]}U" if w.before[d] else "")
        inside = [f"const uint32_t i{d} = {at};"]
        last = (w.out_size[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] - w.before[d]
        if w.before[d] or last >= w.size[d]:
            inside += [f"if (i{d} >= {w.size[d]}U) {{", "  continue; /* outside */", "}"]
        lines = loop(f"k{d}", w.kernel[d], _drop_unused(inside, lines, f"i{d}"))
    return lines


def _drop_unused(inside: list[str], lines: list[str], variable: str) -> list[str]:
    """The place on an axis, unless nothing asks for it."""
    return [*inside, *lines] if len(inside) > 1 or uses(lines, variable) else lines

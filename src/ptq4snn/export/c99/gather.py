"""Elements in another order, joined, or summed by a list."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.text import given, loop
from ptq4snn.network.program import Gather

__all__ = ["gather_lines"]


def gather_lines(ctx: Context, group: Group, op: Gather) -> list[str]:
    """Stores all elements of the value."""
    index = op.index.array().reshape(-1, op.width)
    if op.width == 1 and len(op.inputs) == 1 and int(index.min()) >= 0:
        return _moved(ctx, op, index[:, 0])
    return _listed(ctx, op, index)


def _moved(ctx: Context, op: Gather, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[str]:
    """y[p, c] = x[position, channel]: each by a rule, or from a table."""
    x, y = ctx.plan.places[op.inputs[0]], ctx.plan.places[op.output]
    channels, own = x.value.channels, y.value.channels
    position = ctx.place2(index // channels, own, "p", "c", "position")
    channel = ctx.place2(index % channels, own, "p", "c", "channel")
    store = y.write("p", "c", x.read("q", "r"))
    return _grid(y.value.positions, own, given("q", position, given("r", channel, [store])))


def _listed(ctx: Context, op: Gather, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[str]:
    """Sums and maxima of elements of all inputs, laid end to end; -1 is a zero."""
    y = ctx.plan.places[op.output]
    wide = y.wide or any(ctx.is_wide(v) for v in op.inputs)
    kind = "int64_t" if wide else "int32_t"
    if wide:
        ctx.wide.add(op.name)
    at = f"(p * {y.value.channels}U + c)"
    place = at if op.width == 1 else f"({at} * {op.width}U + k)"
    lines = [f"const int32_t e = {ctx.tables.per(index, place, 'elements')};", f"{kind} x = 0;"]
    begin, word = 0, "if"
    for v in op.inputs:
        x = ctx.plan.places[v]
        size = x.value.positions * x.value.channels
        element = f"((uint32_t)e - {begin}U)" if begin else "(uint32_t)e"
        read = x.read(f"({element} / {x.value.channels}U)", f"({element} % {x.value.channels}U)")
        test = f"e >= {begin} && e < {begin + size}"
        lines += [f"{word} ({test}) {{", f"  x = {read};", "}"]
        begin += size
        word = "else if"
    out = "int64_t" if y.wide else "int32_t"
    if op.how == "sum":
        lines.append("y += x;")
    else:
        lines.append("y = k == 0 || x > y ? x : y;")
    if op.width == 1:
        lines = given("k", "0", lines)
    else:
        lines = loop("k", op.width, lines)
    body = [f"{kind} y = 0;", *lines, y.write("p", "c", f"({out})y" if out != kind else "y")]
    return _grid(y.value.positions, y.value.channels, body)


def _grid(positions: int, channels: int, body: list[str]) -> list[str]:
    return loop("p", positions, loop("c", channels, body))

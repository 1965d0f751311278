"""Pools and products of two values: like projections they leave the numbers of one position."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.c99.context import Context, taps
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.text import given, loop
from ptq4snn.network.program import MatMul, Pool

__all__ = ["matmul_row", "pool_row", "row_value"]

LEAST = {"int32_t": "INT32_MIN", "int64_t": "INT64_MIN"}


def row_value(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """y{output} of channel c, from the row."""
    op = ctx.model.program.operations[i]
    kind = "int64_t" if ctx.is_wide(op.output) else "int32_t"
    return [f"const {kind} y{op.output} = {group.scratch[f'row{i}'].word('0', 'c')};"]


def pool_row(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """The sum or the maximum over a window of positions."""
    op = ctx.model.program.operations[i]
    assert isinstance(op, Pool)
    x, value = ctx.plan.places[op.inputs[0]], ctx.model.program.values[op.output]
    kind = "int64_t" if x.wide or ctx.is_wide(op.output) else "int32_t"
    out = "int64_t" if ctx.is_wide(op.output) else "int32_t"
    if kind == "int64_t":
        ctx.wide.add(op.name)
    row = ctx.scratch(group, f"row{i}", out, value.channels)
    y, item = row.word("0", "c"), x.read("q", "c")
    if op.how == "sum":
        clear = [row.clear()]
        add = f"{y} = ({out})({y} + ({item}));"
        body = _channels(value.channels, [add])
    else:
        clear = _channels(value.channels, [f"{y} = {LEAST[out]};"])
        body = _channels(
            value.channels, [f"const {kind} x = {item};", f"if (x > {y}) {{", f"  {y} = ({out})x;", "}"]
        )
    if op.window is not None:
        return [*clear, *taps(op.window, body)]
    return [*clear, *_listed(ctx, op, row.word("0", "c"), item, (kind, out), p)]


def _channels(count: int, body: list[str]) -> list[str]:
    return loop("c", count, body)


def _listed(ctx: Context, op: Pool, y: str, item: str, types: tuple[str, str], p: str) -> list[str]:
    """Taps from a table; -1 is a zero. `types` are those of an item and of the sum."""
    kind, out = types
    value = ctx.model.program.values[op.output]
    at, weights = op.table(value.positions)
    width = at.shape[1]
    place = f"{p} * {width}U + k" if value.positions > 1 else "k"
    lines = [f"const int32_t tap = {ctx.tables.per(at.reshape(-1), place, 'taps')};"]
    weight = ""
    if weights is not None:
        wide = kind == "int64_t" or int(np.abs(weights).max()) >= 2**31
        by = ctx.tables.per(weights.reshape(-1), place, "weights of the taps", wide)
        weight = f" * {by}"
    read = [f"const {kind} x = tap < 0 ? 0 : {item};"]
    if op.how == "sum":
        read.append(f"{y} = ({out})({y} + x{weight});")
    else:
        read += [f"if (x > {y}) {{", f"  {y} = ({out})x;", "}"]
    lines += given("q", "tap < 0 ? 0U : (uint32_t)tap", _channels(value.channels, read))
    return loop("k", width, lines)


def matmul_row(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """Row p of a times the b of its group; zeros of a are passed over."""
    op = ctx.model.program.operations[i]
    assert isinstance(op, MatMul)
    a, b = (ctx.plan.places[v] for v in op.inputs)
    value = ctx.model.program.values[op.output]
    kind = "int64_t" if a.wide or b.wide or ctx.is_wide(op.output) else "int32_t"
    out = "int64_t" if ctx.is_wide(op.output) else "int32_t"
    if kind == "int64_t":
        ctx.wide.add(op.name)
    row, inner = ctx.scratch(group, f"row{i}", out, value.channels), a.value.channels
    each = value.positions // op.groups
    begin = f"{p} / {each}U * {inner}U + j" if op.groups > 1 else "j"
    y = row.word("0", "c")
    add = f"{y} = ({out})({y} + x * {b.read('r', 'c')});"
    body = [
        f"const {kind} x = {a.read(p, 'j')};",
        "if (x == 0) {",
        "  continue;",
        "}",
        *given("r", begin, _channels(value.channels, [add])),
    ]
    return [row.clear(), *loop("j", inner, body)]

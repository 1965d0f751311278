"""Operations on single elements: y of channel c at position p."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.text import fits32, number
from ptq4snn.network import program as ops

__all__ = ["pointwise_value"]

SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def pointwise_value(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """Statements that make y{output}."""
    op = ctx.model.program.operations[i]
    wide = any(ctx.is_wide(v) for v in (*op.inputs, op.output))
    kind = "int64_t" if wide else "int32_t"
    if wide:
        ctx.wide.add(op.name)
    names, lines = [], []
    for n, v in enumerate(op.inputs):
        names.append(f"x{i}_{n}")
        lines.append(f"const {kind} {names[-1]} = {ctx.read(group, v, p, 'c')};")
    out = "int64_t" if ctx.is_wide(op.output) else "int32_t"
    y = _RULES[type(op)](ctx, op, names, wide)
    return [*lines, f"const {out} y{op.output} = {y if out == kind else f'({out})({y})'};"]


def _combine(ctx: Context, op: ops.Combine, x: list[str], wide: bool) -> str:
    """Coefficients and constants that do not fit 32 bits come with values that do not."""
    terms = [
        f"{number(c, wide)} * {name}" if c != 1 else name
        for c, name in zip(op.coefficients, x, strict=True)
        if c
    ]
    if op.constant or not terms:
        terms.append(number(op.constant, wide))
    return " + ".join(terms) + "".join(
        f" + 0 * {n}" for c, n in zip(op.coefficients, x, strict=True) if not c
    )


def _multiply(ctx: Context, op: ops.Multiply, x: list[str], wide: bool) -> str:
    return f"{x[0]} * {x[1]}"


def _affine(ctx: Context, op: ops.Affine, x: list[str], wide: bool) -> str:
    m = ctx.model.mirrors[op.name]
    sign, shift = ctx.tables.per(m.signs, "c", "sign", wide), ctx.tables.per(m.shifts, "c", "shift", wide)
    return f"{sign} * {x[0]} + {shift}"


def _clip(ctx: Context, op: ops.Clip, x: list[str], wide: bool) -> str:
    low, high = ctx.model.bounds.values[op.inputs[0]]
    y = x[0]
    if op.high is not None and op.high < high:
        y = f"{x[0]} > {number(op.high, wide)} ? {number(op.high, wide)} : {y}"
    if op.low is not None and op.low > low:
        y = f"{x[0]} < {number(op.low, wide)} ? {number(op.low, wide)} : {y}"
    return f"({y})" if y != x[0] else y


def _choice(ctx: Context, op: ops.Choice, x: list[str], wide: bool) -> str:
    sign = SIGNS.get(op.how, ">" if op.how == "max" else "<")
    if op.constant is None:
        other = x[1]
    elif wide or fits32(op.constant):
        other = number(op.constant, wide)
    else:  # +-2^31, which no 32-bit value reaches: one sign, whatever x is
        other = number(op.constant, True)
        x = [f"(int64_t){x[0]}"]
    if op.how not in ("max", "min"):
        return f"({x[0]} {sign} {other})"
    return f"({x[0]} {sign} {other} ? {x[0]} : {other})"


_RULES: dict[type[ops.Operation], Callable[[Context, Any, list[str], bool], str]] = {
    ops.Combine: _combine,
    ops.Multiply: _multiply,
    ops.Affine: _affine,
    ops.Clip: _clip,
    ops.Choice: _choice,
}

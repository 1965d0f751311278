"""The input as levels: p = clip(rint(x / scale + zero / 2^16), 0, 255), for those who have floats."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.outputs import hexes
from ptq4snn.export.c99.text import block, initializer
from ptq4snn.network.program import Quantize

__all__ = ["front_lines", "level_count", "quantizers"]


def quantizers(ctx: Context) -> list[Quantize]:
    return [op for op in ctx.model.program.operations if isinstance(op, Quantize)]


def level_count(ctx: Context) -> int:
    """Bytes of one step's input."""
    values = [ctx.model.program.values[op.output] for op in quantizers(ctx)]
    return sum(v.positions * v.channels for v in values)


def front_lines(ctx: Context) -> list[str]:
    body: list[str] = []
    tables: list[str] = []
    for n, op in enumerate(quantizers(ctx)):
        more, lines = _one(ctx, n, op)
        tables += more
        body += lines
    return [
        *tables,
        f"void {ctx.name}_levels(const float *x, uint8_t *levels)",
        "{",
        *block(body),
        "}",
        "",
    ]


def _one(ctx: Context, n: int, op: Quantize) -> tuple[list[str], list[str]]:
    grid, place = ctx.model.projections[op.name].input, ctx.plan.places[op.output]
    assert grid is not None
    index, channels = op.index.array(), place.value.channels
    inverse, zero = 1 / grid.scales, grid.zeros / 2**16
    tables = []
    for what, values in (("inverse", inverse), ("zero", zero)):
        tables += [
            f"static const double {ctx.name}_{what}{n}[{len(values)}] = {{",
            *initializer(hexes(values)),
            "};",
        ]
    c = "c" if len(inverse) > 1 else "0"
    given = f"x[{_element(ctx, index, channels)}]"
    if int(index.min()) < 0:
        at = ctx.tables.per(index, f"p * {channels}U + c", "element of the input")
        given = f"{at} < 0 ? 0.0f : x[{at}]"
    body = [
        f"volatile double y = (double)({given}) * {ctx.name}_inverse{n}[{c}]; /* volatile: rounded here */",
        "uint32_t level = 0;",
        f"y = y + {ctx.name}_zero{n}[{c}];",
        "if (y >= 255.0) {",
        "  level = 255;",
        "} else if (y > 0.0) { /* halves to even */",
        "  level = (uint32_t)y;",
        "  y = y - (double)level;",
        "  level += y > 0.5 || (y >= 0.5 && level % 2U == 1U);",
        "}",
        f"levels[{place.offset}U + p * {channels}U + c] = (uint8_t)level;",
    ]
    return tables, [
        f"for (uint32_t p = 0; p < {place.value.positions}; p++) {{",
        f"  for (uint32_t c = 0; c < {channels}; c++) {{",
        *block(body, 2),
        "  }",
        "}",
    ]


def _element(ctx: Context, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]], channels: int) -> str:
    return "0" if int(index.min()) < 0 else ctx.place2(index, channels, "p", "c", "element of the input")

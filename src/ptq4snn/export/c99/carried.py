"""What goes from step to step besides the states of neurons: delays and sums over time."""

from __future__ import annotations

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.neuron import state_access
from ptq4snn.export.c99.text import loop, number
from ptq4snn.network.program import Delay
from ptq4snn.runtime.state import rows_of

__all__ = ["delay_lines", "store_lines"]


def delay_lines(ctx: Context, op: Delay) -> list[str]:
    """The value of the step before, out of its packed row."""
    place, rows = ctx.plan.places[op.output], rows_of(ctx.model, op)
    get, _ = _access(ctx, op)
    field = get if int(rows.zero[0]) == 0 else f"{get} + {number(int(rows.zero[0]))}"
    return _each(place.value.positions, place.value.channels, [place.write("p", "c", field)])


def store_lines(ctx: Context, op: Delay) -> list[str]:
    """The value of this step, for the next one."""
    place, rows = ctx.plan.places[op.inputs[0]], rows_of(ctx.model, op)
    _, put = _access(ctx, op)
    zero = int(rows.zero[0])
    wide = place.wide
    x = place.read("p", "c")
    x = x if zero == 0 else f"({x} - {number(zero, wide)})"
    body = [put.format(f"(int32_t){x}" if wide else x)]
    return _each(place.value.positions, place.value.channels, body)


def _access(ctx: Context, op: Delay) -> tuple[str, str]:
    ((width, _),) = rows_of(ctx.model, op).widths
    row = f"s->d{op.output}"
    if width == 1:
        byte, shift = f"{row}[f / 8U]", "(f % 8U)"
        put = (
            f"{byte} = (uint8_t)(((uint32_t){byte} & ~(1U << {shift})) | (((uint32_t){{}} & 1U) << {shift}));"
        )
        return f"-(int32_t)(((uint32_t){byte} >> {shift}) & 1U)", put
    return state_access(ctx, row, "", "f", width, 0)


def _each(positions: int, channels: int, body: list[str]) -> list[str]:
    inner = [f"const uint32_t f = p * {channels}U + c;", *body]
    return loop("p", positions, loop("c", channels, inner))

"""The canonical neuron, one step: states are taken out of their packed rows and put back.

A = x + rshift(V m, n)    S = A >= theta    A' = 0 or A - rho where it fires    V = clip(rshift(A' m, n))

What counts its spikes has S = A / theta, 0 .. most, by the division of C, and A' = A - rho S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.text import Integers, fits32, given, loop, scaled
from ptq4snn.network.program import Neuron
from ptq4snn.numerics.dither import HALF, STRIDE
from ptq4snn.runtime.parameters import NeuronNumbers
from ptq4snn.runtime.state import rows_of

__all__ = ["neuron_by_element", "neuron_loops", "state_access"]

PHASE = 2**16


@dataclass(frozen=True)
class _Cell:
    """The neuron at element (p, c), whose channel is `k`."""

    ctx: Context
    group: Group
    op: Neuron
    n: NeuronNumbers
    k: str
    which: Integers  # the channels that may occur
    p: str

    def per(self, values: Integers, note: str, wide: bool = False) -> str:
        return self.ctx.tables.per(_only(values, self.which), self.k, note, wide)

    @property
    def wide(self) -> bool:
        peak = self.ctx.model.bounds.potentials[self.op.name] + PHASE
        return not fits32(peak, *self.n.theta[self.which], self.n.taken)


def _only(values: Integers, which: Integers) -> Integers:
    """The values, those that do not occur replaced by one that does: what is alike is then one number."""
    seen = values[which]
    out = np.full_like(values, seen[0])
    out[which] = seen
    return out


def neuron_loops(ctx: Context, group: Group, op: Neuron, p: str, before: list[str]) -> list[str]:
    """All channels at position p; `before` makes what the neuron reads. One loop for each width of states."""
    n = ctx.model.neurons[op.name]
    if op.once:
        cell = _Cell(ctx, group, op, n, "c", np.arange(len(n.bits)), p)
        channels = ctx.model.program.values[op.output].channels
        return loop("c", channels, [*before, *_step(cell, "", "")])
    rows = rows_of(ctx.model, op)
    lines, begin, bit = [], 0, 0
    for width, count in rows.widths:
        order = rows.order[begin : begin + count]
        cell = _Cell(ctx, group, op, n, "c", np.unique(order), p)
        row = f"{p} * {rows.size}U" if rows.count > 1 and rows.size > 1 else p if rows.count > 1 else ""
        get, put = state_access(ctx, f"s->n{op.output}", row, "f", width, bit)
        body = given(
            "c", ctx.tables.at(order, "f", "channels of this width"), [*before, *_step(cell, get, put)]
        )
        lines += loop("f", count, body)
        begin, bit = begin + count, bit + width * count
    return lines


def neuron_by_element(ctx: Context, group: Group, op: Neuron) -> list[str]:
    """Where each element has a channel of its own: one row of states, its fields by widths."""
    n, value = ctx.model.neurons[op.name], ctx.model.program.values[op.output]
    assert op.channel is not None
    channel = op.channel.array()
    cell = _Cell(ctx, group, op, n, "k", np.unique(channel), "p")
    own: list[str] = []
    clear, after, get, put = [], [], "", ""
    if not op.once:
        rows = rows_of(ctx.model, op)
        if len(rows.widths) == 1:
            own.append(f"const uint32_t f = p * {value.channels}U + c;")
            get, put = state_access(ctx, f"s->n{op.output}", "", "f", rows.widths[0][0], 0)
        else:
            kinds = {w: i for i, (w, _) in enumerate(rows.widths)}
            begins = np.cumsum([0] + [w * count for w, count in rows.widths])[:-1]
            which = np.array([kinds.get(int(w), 0) for w in n.bits])
            clear = [f"uint32_t at[{len(kinds)}] = {{{', '.join(f'{b}U' for b in begins)}}};"]
            own += [
                f"const uint32_t kind = (uint32_t){ctx.tables.per(which, 'k', 'kind of width')};",
                f"const uint32_t width = (uint32_t){ctx.tables.per(n.bits, 'k', 'width')};",
            ]
            get = f"{ctx.helpers.use('get')}(s->n{op.output}, at[kind], width)"
            put = f"{ctx.helpers.use('put')}(s->n{op.output}, at[kind], width, {{}});"
            after = ["at[kind] += width;"]
    x = ctx.read(group, op.inputs[0], "p", "c")
    kind = "int64_t" if ctx.is_wide(op.inputs[0]) else "int32_t"
    body = [*own, f"const {kind} y{op.inputs[0]} = {x};", *_step(cell, get, put, True), *after]
    body = given("k", ctx.place2(channel, value.channels, "p", "c", "channel"), body)
    return [*clear, *loop("p", value.positions, loop("c", value.channels, body))]


def state_access(ctx: Context, row: str, begin: str, f: str, width: int, bit: int) -> tuple[str, str]:
    """Field f of those of `width` bits that begin at `bit` of a row, and the statement that puts {} there."""
    if bit % 8 or width not in (2, 4, 8, 16, 32):
        at = f"{bit}U + {f} * {width}U" if bit else f"{f} * {width}U"
        pointer = f"&{row}[{begin or '0'}]"
        return (
            f"{ctx.helpers.use('get')}({pointer}, {at}, {width}U)",
            f"{ctx.helpers.use('put')}({pointer}, {at}, {width}U, {{}});",
        )
    head = " + ".join(x for x in (begin, f"{bit // 8}U" if bit else "") if x)
    head = f"{head} + " if head else ""
    if width == 8:
        byte = f"{row}[{head}{f}]"
        return f"(int8_t){byte}", f"{byte} = (uint8_t){{}};"
    if width in (16, 32):
        size = width // 8
        bytes_ = [f"{row}[{head}{size}U * {f}{f' + {i}U' if i else ''}]" for i in range(size)]
        parts = " | ".join(
            f"((uint32_t){b} << {8 * i})" if i else f"(uint32_t){b}" for i, b in enumerate(bytes_)
        )
        put = " ".join(f"{b} = (uint8_t)((uint32_t){{0}} >> {8 * i});" for i, b in enumerate(bytes_))
        return f"(int{width}_t)({parts})", put
    each, mask = 8 // width, 2**width - 1
    byte, shift = f"{row}[{head}{f} / {each}U]", f"({width}U * ({f} % {each}U))"
    get = f"(int32_t)((((uint32_t){byte} >> {shift}) & {mask}U) ^ {2 ** (width - 1)}U) - {2 ** (width - 1)}"
    others = f"((uint32_t){byte} & ~({mask}U << {shift}))"
    put = f"{byte} = (uint8_t)({others} | (((uint32_t){{}} & {mask}U) << {shift}));"
    return get, put


def _step(cell: _Cell, get: str, put: str, read: bool = False) -> list[str]:
    """One step of one element."""
    ctx, op, n = cell.ctx, cell.op, cell.n
    wide = cell.wide
    kind = "int64_t" if wide else "int32_t"
    if wide:
        ctx.wide.add(op.name)
    spikes = ctx.plan.places[op.output]
    lines: list[str] = []
    potential = None if op.potential is None else ctx.plan.places[op.potential]
    lines.append(
        f"const {kind} A = {' + '.join(filter(None, (_incoming(cell, wide, read), _charge(cell, wide))))};"
    )
    if potential is not None:
        out = _lifted(cell, potential.wide) if op.carried else "A"
        lines.append(potential.write(cell.p, "c", out))
    lines += _fires(cell, kind, wide)
    lines.append(spikes.write(cell.p, "c", "fires"))
    if op.once:
        return lines
    return given(
        "v", _plus(get, cell.per(n.zero, "zero")), [*lines, *_settle(cell, kind, wide, put)], "int32_t"
    )


def _fires(cell: _Cell, kind: str, wide: bool) -> list[str]:
    """Whether, or how often."""
    theta, most = cell.per(cell.n.theta, "threshold", wide), cell.n.most
    if most == 1:
        return [f"const uint32_t fires = A >= {theta};"]
    return [
        f"const {kind} fit = A < {theta} ? 0 : A / {theta};",
        f"const uint32_t fires = fit > {most} ? {most}U : (uint32_t)fit;",
    ]


def _plus(x: str, y: str) -> str:
    return x if y == "0" else f"{x} + {y}"


def _incoming(cell: _Cell, wide: bool, read: bool) -> str:
    """x, in units; what was summed over other steps than at calibration as if over those."""
    ctx, op, n = cell.ctx, cell.op, cell.n
    v, factor = op.inputs[0], op.factor * 2**n.shift
    x = f"y{v}" if read else ctx.read(cell.group, v, cell.p, "c")
    x = f"(int64_t){x}" if wide and not ctx.is_wide(v) else x
    if not n.over_time:
        x = scaled(x, factor, wide)
        return f"(int32_t)({x})" if ctx.is_wide(v) and not wide else x
    ctx.wide.add(op.name)
    x = scaled(f"(int64_t){x}", factor, True)
    adjusted = f"{ctx.helpers.use('steps')}({x}, 0, {ctx.model.program.steps}U, s->steps)"
    return adjusted if wide else f"(int32_t){adjusted}"


def _charge(cell: _Cell, wide: bool) -> str:
    """rshift(V m, n): what is left of the state."""
    n, op = cell.n, cell.op
    if op.once or not n.charge_m[cell.which].any():
        return ""
    return _product(cell, n.charge_m, n.charge_n, "leak", wide)


def _product(cell: _Cell, m: Integers, shifts: Integers, what: str, wide: bool) -> str:
    """rshift(V m, n) of a state."""
    ctx, n, which = cell.ctx, cell.n, cell.which
    rounded = bool((m[which] % (1 << shifts[which])).any())
    m = m if rounded else m >> shifts
    top = np.maximum(np.abs(n.low), np.abs(n.high))
    reach = max(int(a) * int(b) for a, b in zip(top[which], m[which], strict=True))
    half = 1 << max(0, int(shifts[which].max()) - 1) if rounded else 0
    product_wide = (wide and not rounded) or not fits32(reach + half)
    if product_wide:
        ctx.wide.add(cell.op.name)
    factor = cell.per(m, f"{what}: factor", product_wide)
    result = f"{'(int64_t)v' if product_wide else 'v'} * {factor}"
    if rounded:
        even = ctx.helpers.use(f"even:{'64' if product_wide else '32'}")
        result = f"{even}({result}, {cell.per(shifts, f'{what}: shift')})"
    return f"(int32_t)({result})" if product_wide and not wide else result


def _lifted(cell: _Cell, wide: bool) -> str:
    return _product(cell, cell.n.lift_m, cell.n.lift_n, "state in units", wide)


def _settle(cell: _Cell, kind: str, wide: bool, put: str) -> list[str]:
    """The reset, the rounding and the limits."""
    ctx, n, which = cell.ctx, cell.n, cell.which
    rho = cell.per(n.rho, "reset", wide)
    soft = f"fires ? A - {rho} : A" if n.most == 1 else f"A - {rho} * ({kind})fires"
    after = {"hard": "fires ? 0 : A", "none": "A"}.get(n.reset, soft)
    lines = [f"const {kind} r = {after};"]
    shifts = cell.per(n.settle_n, "settle: shift")
    peak = ctx.model.bounds.potentials[cell.op.name]
    most = peak
    if n.rounding == "dither":
        element = _element(cell)
        lines += [
            f"const uint32_t d = ({STRIDE}U * ({element}) + {HALF}U + phase) & 0xFFFFU;",
            f"{kind} q = (r + ({kind})(d >> (16 - {shifts}))) >> {shifts};",
        ]
        most += PHASE
    else:
        m = n.settle_m[which]
        half = 1 << max(0, int(n.settle_n[which].max()) - 1)
        product_wide = wide or not fits32(peak * int(m.max()) + half)
        size = "64" if product_wide else "32"
        if product_wide:
            ctx.wide.add(cell.op.name)
        factor = cell.per(n.settle_m, "settle: factor", product_wide)
        x = "(int64_t)r" if product_wide and not wide else "r"
        x = x if factor in ("1", "INT64_C(1)") else f"{x} * {factor}"
        kind = "int64_t" if product_wide else "int32_t"
        x = x if not n.settle_n[which].any() else f"{ctx.helpers.use(f'even:{size}')}({x}, {shifts})"
        lines.append(f"{kind} q = {x};")
        most = peak * int(m.max()) + 1
    zero, q64 = cell.per(n.zero, "zero"), kind == "int64_t"
    least = int(n.low[which].max()), int(n.high[which].min())
    top = (most >> int(n.settle_n[which].min())) + 1
    if not (least[0] <= -top and top <= least[1]):
        low, high = cell.per(n.low, "least state", q64), cell.per(n.high, "largest state", q64)
        lines += [f"if (q < {low}) {{", f"  q = {low};", f"}} else if (q > {high}) {{", f"  q = {high};", "}"]
    stored = "q" if zero == "0" else f"(q - {zero})"
    return [*lines, put.format(f"(int32_t){stored}" if q64 else stored)]


def _element(cell: _Cell) -> str:
    value = cell.ctx.model.program.values[cell.op.output]
    count = value.positions * value.channels
    numbers = np.arange(count) if cell.op.element is None else cell.op.element.array()
    return cell.ctx.place2(numbers, value.channels, cell.p, "c", "element")

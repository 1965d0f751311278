"""Projections: y = ((W x) << shift) + bias, the sums of one position at a time.

Two loops: *event* goes over what is not zero and adds rows of weights, *dense* over everything. Rows of
spikes and of small counts are added in lanes of 8 bits (weights up to 4 bits) or of 16, as many as cannot
overflow, and from there into wider sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ptq4snn.export.c99.context import Context, taps
from ptq4snn.export.c99.plan import Group
from ptq4snn.export.c99.storage import Place
from ptq4snn.export.c99.text import block, fits32, given, loop, scaled
from ptq4snn.export.c99.weights import Packed
from ptq4snn.network.program import Project
from ptq4snn.runtime.numpy_project import border_map
from ptq4snn.runtime.parameters import ProjectionNumbers

__all__ = ["project_row", "project_value"]

BYTE, HALF = 255, 65535  # the most that a lane holds
FEW = 4  # weights of so many bits are added in bytes


@dataclass(frozen=True)
class _Work:
    """A projection at work: `n` counts what was added (sum of x), to take the weights' offset away again."""

    ctx: Context
    group: Group
    op: Project
    number: int  # of the operation
    p: str

    @property
    def numbers(self) -> ProjectionNumbers:
        return self.ctx.model.projections[self.op.name]

    @property
    def x(self) -> Place:
        return self.ctx.plan.places[self.op.inputs[0]]

    @property
    def packed(self) -> Packed:
        return self.ctx.packed(self.op)[1]

    @property
    def symbol(self) -> str:
        return self.ctx.packed(self.op)[0]

    @property
    def n(self) -> str:
        return f"n{self.number}"

    @property
    def terms(self) -> int:
        """Of one sum."""
        return prod(self.numbers.weight.shape[1:])

    @property
    def wide(self) -> bool:
        """Whether a sum needs 64 bits."""
        low, high = self.ctx.model.bounds.sums[self.op.name]
        return not fits32(int(low.min()), int(high.max()))

    @property
    def event(self) -> bool:
        return self.ctx.paths[self.op.name] == "event"

    @property
    def rows(self) -> bool:
        """Whether whole rows of weights are added."""
        return self.op.groups == 1 and not self.packed.flat

    @property
    def lanes(self) -> bool:
        """Whether rows are added in lanes."""
        fits = self.x.kind == "packed" and (
            self.packed.bits > FEW or self.x.high * (2**self.packed.bits - 1) <= BYTE
        )
        return self.rows and self.event and fits and not self.wide

    def scratch(self, what: str, kind: str, count: int) -> Place:
        return self.ctx.scratch(self.group, f"{what}{self.number}", kind, count)


def project_row(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """Statements that leave the sums of position p."""
    op = ctx.model.program.operations[i]
    assert isinstance(op, Project)
    work = _Work(ctx, group, op, i, p)
    if work.lanes:
        clear, body, end = _lanes(work)
    elif work.rows:
        clear, body, end = _rows(work)
    else:
        clear, body, end = _single(work)
    if op.window is None:
        around = ["{", *block(given("q", p, given("k", "0", body))), "}"]
    else:
        around = taps(op.window, body)
    return [*clear, *around, *end]


def _stages(work: _Work) -> tuple[int, str]:
    """Weights that one lane takes before it is emptied (0: all there can be), and where the sums end:
    "8", "16" or "32" bits."""
    each, most = 2**work.packed.bits - 1, work.terms * work.x.high
    if work.packed.bits <= FEW:
        if most * each <= BYTE:
            return 0, "8"
        return BYTE // each, "16" if most * each <= HALF else "32"
    return (0, "16") if most * each <= HALF else (HALF // each, "32")


def _lanes(work: _Work) -> tuple[list[str], list[str], list[str]]:
    h, packed, x, n = work.ctx.helpers, work.packed, work.x, work.n
    limit, end = _stages(work)
    first = "8" if packed.bits <= FEW else "16"
    narrow = work.scratch("narrow", "uint32_t", packed.lanes * (1 if first == "8" else 2))
    clear = [narrow.clear(), f"uint32_t {n} = 0; /* spikes */"]
    empty = ""
    if limit:
        wide = work.scratch("sums", "uint32_t", packed.lanes * (2 if end == "16" else 4))
        clear = [wide.clear(), *clear, f"uint32_t m{work.number} = 0; /* of them since sums were emptied */"]
        helper = h.use("widen") if end == "16" else h.use(f"drain:{first}")
        empty = f"{helper}({narrow.pointer}, {wide.pointer}, {packed.lanes}U);"
    times = "x" if x.width > 1 else "1"
    add = h.use(f"{'add' if first == '8' else 'wide'}:{packed.bits},{times}")
    first_bit, channel = h.use("first"), _channel(x)
    f = f"{first_bit}(x)" if x.width == 1 else f"{first_bit}(x) & ~{x.width - 1}U"
    row = f"&{work.symbol}[(k * {work.numbers.weight.shape[1]}U + {channel}) * {packed.row}U]"
    count = "1U" if x.width == 1 else "t"
    inner = [f"const uint32_t f = {f};"]
    if x.width == 1:
        inner.append("x &= x - 1U;")
    else:
        inner += [f"const uint32_t t = (x >> f) & {2**x.width - 1}U;", "x ^= t << f;"]
    if limit:
        m = f"m{work.number}"
        inner += [f"if ({m} + {count} > {limit}U) {{", f"  {empty}", f"  {m} = 0;", "}", f"{m} += {count};"]
    inner += [
        f"{add}({narrow.pointer}, {row}, {packed.lanes}U{', t' if x.width > 1 else ''});",
        f"{n} += {count};",
    ]
    scan = [f"uint32_t x = {x.word('q', 'j')};", "while (x != 0) {", *block(inner), "}"]
    if x.row == 1:
        body = ["{", *block(scan), "}"]
    else:
        body = loop("j", x.row, scan)
    return clear, body, [empty] if limit else []


def _channel(x: Place) -> str:
    """The channel of the field at bit f of word j."""
    field = "f" if x.width == 1 else f"f / {x.width}U"
    return field if x.row == 1 else f"j * {x.fields}U + {field}"


def _rows(work: _Work) -> tuple[list[str], list[str], list[str]]:
    """x times a row, for every input channel."""
    size = "64" if work.wide else "32"
    sums = work.scratch("sums", "int64_t" if work.wide else "uint32_t", work.packed.fields)
    mac = work.ctx.helpers.use(f"mac:{work.packed.bits},{size}")
    inside = work.numbers.weight.shape[1]
    row = f"&{work.symbol}[(k * {inside}U + j) * {work.packed.row}U]"
    target = f"(uint64_t *){sums.pointer}" if work.wide else sums.pointer
    body = [
        f"const uint{size}_t x = (uint{size}_t){work.x.read('q', 'j')};",
        *(["if (x == 0) {", "  continue;", "}"] if work.event else []),
        f"{mac}({target}, {row}, {work.packed.lanes}U, x);",
        f"{work.n} += x;",
    ]
    lines = loop("j", inside, body)
    return [sums.clear(), f"uint{size}_t {work.n} = 0; /* sum of x */"], lines, []


def _single(work: _Work) -> tuple[list[str], list[str], list[str]]:
    """Weight by weight: groups, and rows that are too short."""
    cout, inside = work.numbers.weight.shape[:2]
    kind = "int64_t" if work.wide else "int32_t"
    sums, groups = work.scratch("sums", kind, cout), work.op.groups
    weight, each = work.ctx.helpers.use(f"weight:{work.packed.bits}"), cout // groups
    row = f"(k * {inside}U + j)"
    if work.packed.flat:
        w = f"{weight}({work.symbol}, {work.packed.lanes}U, {row} * {cout}U + o)"
    else:
        w = f"{weight}(&{work.symbol}[{row} * {work.packed.row}U], {work.packed.lanes}U, o)"
    first, last = (f"g * {each}U", f"(g + 1U) * {each}U") if groups > 1 else ("0", f"{cout}U")
    channel = "j" if groups == 1 else f"g * {inside}U + j"
    body = [
        f"const {kind} x = {work.x.read('q', f'({channel})' if groups > 1 else channel)};",
        *(["if (x == 0) {", "  continue;", "}"] if work.event else []),
        f"for (uint32_t o = {first}; o < {last}; o++) {{",
        f"  {sums.word('0', 'o')} += x * {work.packed.weight(w)};",
        "}",
    ]
    lines = loop("j", inside, body)
    if groups > 1:
        lines = loop("g", groups, lines)
    return [sums.clear()], lines, []


def project_value(ctx: Context, group: Group, i: int, p: str) -> list[str]:
    """A statement for y of channel c at position p, from the sums."""
    op = ctx.model.program.operations[i]
    assert isinstance(op, Project)
    work = _Work(ctx, group, op, i, p)
    n = work.numbers
    bias = border_map(n, op, work.x.value.positions)
    low, high = ctx.model.bounds.sums[op.name]
    most = int(max(-low.min(), high.max())) * 2**n.shift + int(np.abs(bias).max())
    wide = work.wide or not fits32(most, most + int(np.abs(n.bias).max()))
    kind = "int64_t" if wide else "int32_t"
    total = f"({kind}){_sum(work)}" if wide and not work.wide else _sum(work)
    y = f"{scaled(total, 2**n.shift, wide)} + {_bias(work, bias, wide)}"
    lines = []
    adjusted = n.over_time and n.role != "output"
    if not adjusted and n.rescale is None:
        out = "int64_t" if ctx.is_wide(op.output) else "int32_t"
        return [f"const {out} y{op.output} = {y if out == kind else f'({out})({y})'};"]
    if adjusted:
        own = ctx.tables.per(n.bias, "c", "bias", True)
        steps = ctx.helpers.use("steps")
        lines.append(
            f"const int64_t r{i} = "
            f"{steps}((int64_t)({y}) - {own}, {own}, {ctx.model.program.steps}U, s->steps);"
        )
        most, wide, kind = 2**53, True, "int64_t"
    else:
        lines.append(f"const {kind} r{i} = {y};")
    if wide:
        ctx.wide.add(op.name)
    return [*lines, *_rescaled(work, f"r{i}", most)]


def _sum(work: _Work) -> str:
    """W x of channel c."""
    packed, n = work.packed, work.n
    if work.lanes:
        limit, end = _stages(work)
        place = work.group.scratch[f"{'sums' if limit else 'narrow'}{work.number}"]
        if end == "8":
            raw = f"(({place.word('0', 'c / 4U')} >> (8U * (c % 4U))) & 0xFFU)"
        elif end == "16":
            raw = f"(({place.word('0', '2U * (c / 4U) + c % 2U')} >> (16U * (c / 2U % 2U))) & 0xFFFFU)"
        else:
            raw = place.word("0", "c")
        return f"(int32_t)({packed.summed(raw, n)})"
    row = work.group.scratch[f"sums{work.number}"].word("0", "c")
    if not work.rows:
        return row
    if work.wide:
        work.ctx.wide.add(work.op.name)
        return f"(int64_t)({packed.summed(f'(uint64_t){row}', n)})"
    return f"(int32_t)({packed.summed(row, n)})"


def _bias(work: _Work, bias: np.ndarray[tuple[int, ...], np.dtype[np.int64]], wide: bool) -> str:
    """Of channel c; where the input has a zero point, of one of a few kinds of positions."""
    tables, (_, channels) = work.ctx.tables, bias.shape
    if len(bias) == 1 or (bias == bias[0]).all():
        return tables.per(bias[0], "c", "bias", wide)
    kinds, which = np.unique(bias, axis=0, return_inverse=True)
    at = tables.at(which.reshape(-1), work.p, "kind of position")
    base = f"({at}) * {channels}U + c" if channels > 1 else at
    return tables.per(kinds, base, "bias, with the zero point of the input under the taps inside", wide)


def _rescaled(work: _Work, y: str, most: int) -> list[str]:
    """y{output} = clip(rshift(y m, n)), or y itself."""
    ctx, r, out = work.ctx, work.numbers.rescale, work.op.output
    kind = "int64_t" if ctx.is_wide(out) else "int32_t"
    if r is None:
        return [f"const {kind} y{out} = ({kind}){y};"]
    half = 1 << max(0, int(r.shifts.max()) - 1)
    wide = not fits32(most * int(r.multipliers.max()) + half)
    size = "64" if wide else "32"
    if wide:
        ctx.wide.add(work.op.name)
    m = ctx.tables.per(r.multipliers, "c", "multiplier of the rescale", wide)
    n = ctx.tables.per(r.shifts, "c", "shift of the rescale")
    product = f"({f'(int64_t){y}' if wide else y}) * {m}"
    name, top = f"z{work.number}", 2 ** (r.bits - 1)
    return [
        f"const int{size}_t {name} = {ctx.helpers.use(f'even:{size}')}({product}, {n});",
        f"const int32_t y{out} = "
        f"{name} < {-top} ? {-top} : {name} > {top - 1} ? {top - 1} : (int32_t){name};",
    ]

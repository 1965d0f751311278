"""The two files: NAME.h and NAME.c."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptq4snn.export.c99.arena import lay_out
from ptq4snn.export.c99.context import Context
from ptq4snn.export.c99.figures import Figures, figures_of
from ptq4snn.export.c99.finishing import finish_tables
from ptq4snn.export.c99.helpers import Helpers
from ptq4snn.export.c99.kernels import function, parameters
from ptq4snn.export.c99.levels import front_lines, level_count
from ptq4snn.export.c99.outputs import copy_lines, decoder_lines
from ptq4snn.export.c99.plan import Plan, plan_of
from ptq4snn.export.c99.text import Tables, block, initializer, size_of
from ptq4snn.network.program import Delay, Neuron, Operation, TimeSum
from ptq4snn.runtime.decode import late_heads
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.state import pack_rows, rows_of

__all__ = ["Written", "fixed_steps", "stateful", "write_source"]

MOST_STEPS = 2**32 - 1


class Written:
    """The text of the source, and what it was made from."""

    def __init__(self, ctx: Context, lines: list[str], figures: Figures, steps: int) -> None:
        self.ctx, self.lines, self.figures, self.steps = ctx, lines, figures, steps


def stateful(model: Model) -> list[Operation]:
    """What keeps something from step to step."""
    return [
        op for op in model.program.operations
        if isinstance(op, (Delay, TimeSum)) or (isinstance(op, Neuron) and not op.once)
    ]  # fmt: skip


def fixed_steps(model: Model) -> bool:
    """Whether a head behind a mean over time is read by more than the output: it runs T steps, no others."""
    read = {v for op in model.program.operations for v in op.inputs}
    return any(op.output in read for op in late_heads(model))


def write_source(
    model: Model,
    name: str,
    paths: dict[str, str],
    section: str | None,
    embed: bool,
    densities: dict[str, float],
) -> Written:
    """Written twice: the first time tells how much room the operations need."""
    plan = plan_of(model)
    _functions(_context(model, name, plan, paths))
    lay_out(plan, model.program)
    ctx = _context(model, name, plan, paths)
    functions = _functions(ctx)
    steps = model.program.steps if fixed_steps(model) else min(model.bounds.steps, MOST_STEPS)
    driver = _driver(ctx, steps)
    reset = _reset(ctx)
    front = front_lines(ctx) + finish_tables(name, model.program.outputs)
    for n in range(len(model.program.outputs)):
        front += decoder_lines(ctx, n)
    code = [*functions, *reset, *driver]
    helpers = ctx.helpers.lines(code)
    tables = ctx.tables.lines(code)
    lines = [
        f'#include "{name}.h"',
        "",
        "#include <string.h>",
        "",
        "#if (-1 >> 1) != -1",
        '#error "right shifts of negative numbers must keep their sign"',
        "#endif",
        "",
        *_weights(ctx, section, embed),
        *tables,
        "",
        *helpers,
        *code,
        f"#ifdef {name.upper()}_FLOAT",
        "",
        *ctx.tables.lines(front, code),
        *front,
        "#endif",
    ]
    return Written(ctx, lines, figures_of(ctx, [*helpers, *code], densities), steps)


def _context(model: Model, name: str, plan: Plan, paths: dict[str, str]) -> Context:
    return Context(name, model, plan, Tables(name), Helpers(name), paths)


def _functions(ctx: Context) -> list[str]:
    return [line for group in ctx.plan.groups for line in function(ctx, group)]


def _weights(ctx: Context, section: str | None, embed: bool) -> list[str]:
    macro = f"{ctx.name.upper()}_SECTION"
    lines = [f"#ifndef {macro}"]
    lines.append(f'#define {macro} __attribute__((section("{section}")))' if section else f"#define {macro}")
    lines += ["#endif", ""]
    if not embed:
        lines += ["/* the words of the weights' file, where your linker puts them */"]
        lines += [f"extern const uint32_t {ctx.name}_weights[];"]
        begin = 0
        for symbol, packed in ctx.weights.values():
            lines.append(f"#define {symbol} ({ctx.name}_weights + {begin})")
            begin += len(packed.words)
        return [*lines, ""]
    for symbol, packed in ctx.weights.values():
        shape = "one row" if packed.flat else f"rows of {packed.row} words"
        levels = f"{packed.bits} bits, odd" if packed.odd else f"{packed.bits} bits"
        lines.append(f"/* weights of {levels}, {shape} */")
        lines.append(f"static const uint32_t {symbol}[{len(packed.words)}] {macro} = {{")
        lines += [*initializer(f"0x{int(w):08X}U" for w in packed.words), "};"]
    return [*lines, ""]


def _reset(ctx: Context) -> list[str]:
    """Everything at rest: 0, in its packed form."""
    body = ["memset(s, 0, sizeof(*s));"]
    for op in stateful(ctx.model):
        if isinstance(op, TimeSum):
            continue
        assert isinstance(op, (Delay, Neuron))
        rows = rows_of(ctx.model, op)
        row = pack_rows(replace(rows, count=1), np.zeros((1, len(rows.order)), dtype=np.int64)).reshape(-1)
        symbol = f"s->{'d' if isinstance(op, Delay) else 'n'}{op.output}"
        if not row.any():
            continue
        if (row == row[0]).all():
            body.append(f"memset({symbol}, {row[0]}, {rows.count * rows.size});")
        elif rows.count == 1 and (row[:-1] == row[0]).all():
            body += [
                f"memset({symbol}, {row[0]}, {rows.size - 1});",
                f"{symbol}[{rows.size - 1}] = {row[-1]};",
            ]
        else:
            rest = ctx.tables.table(row, "a row of states at rest")
            at = f"&{symbol}[p * {rows.size}U]"
            body += [
                f"for (uint32_t p = 0; p < {rows.count}; p++) {{",
                f"  memcpy({at}, {rest}, {rows.size});",
                "}",
            ]
    return [f"void {ctx.name}_reset({ctx.name}_state *s)", "{", *block(body), "}", ""]


def _calls(ctx: Context, phases: tuple[str, ...]) -> list[str]:
    """Calls of the groups of these phases, each with the outputs that it completes."""
    lines = []
    for group in ctx.plan.groups:
        if group.phase not in phases:
            continue
        text = function(ctx, group)
        if text:
            lines.append(f"{ctx.name}_op{group.root}({parameters(ctx, text[text.index('{') :])[1]});")
        if not (group.phase == "timed" and _sums(ctx, group.root)):
            for n in ctx.plan.outputs.get(group.root, []):
                lines += copy_lines(ctx, n)
        op = ctx.model.program.operations[group.root]
        if isinstance(op, Neuron):
            place = ctx.plan.places[op.output]
            width = place.width or 8 * size_of(place.type)  # bits of one number
            shape = f"{size_of(place.type)}, {width}, {place.value.positions}, {place.value.channels}"
            macro = f"{ctx.name.upper()}_TRACE"
            lines += [f"#ifdef {macro}", f"{macro}({group.root}, {place.pointer}, {shape});", "#endif"]
    if "late" in phases:  # a sum over time may be an output itself
        for group in ctx.plan.groups:
            if group.phase == "timed" and _sums(ctx, group.root):
                for n in ctx.plan.outputs.get(group.root, []):
                    lines += copy_lines(ctx, n)
    return lines


def _sums(ctx: Context, root: int) -> bool:
    return isinstance(ctx.model.program.operations[root], TimeSum)


def _driver(ctx: Context, steps: int) -> list[str]:
    name, model = ctx.name, ctx.model
    timed, late = _calls(ctx, ("still", "timed")), _calls(ctx, ("late",))
    arguments = f"{name}_state *s, {name}_arena *a, const uint8_t *in, {name}_output *out"
    unused = ["(void)s; (void)a; (void)in; (void)out;"]
    ends = f"s->steps >= {steps}U" if _counted(model) else ""
    guard = [f"if ({ends}) {{", "  return 1;", "}"] if ends else []
    last = f"s->steps == {model.program.steps}U" if fixed_steps(model) else ""
    finish = [f"{name}_finish(s, a, out);"]
    if last:
        finish = [f"if ({last}) {{", *block(finish), "}"]
    moves = "" if model.program.input.time_axis is None else f" + t * {level_count(ctx)}U"
    target = "&out[t]" if any(o.time_axis is not None for o in model.program.outputs) else "out"
    end = "&out[steps - 1U]" if target != "out" else "out"
    refuse = f"steps != {model.program.steps}U" if last else f"steps == 0U || steps > {steps}U"
    return [
        "/* what has time, and the sums over it */",
        f"static void {name}_advance({arguments})",
        "{",
        *block([*unused, "s->steps++;", *timed]),
        "}",
        "",
        "/* what stands behind a sum over time */",
        f"static void {name}_finish({name}_state *s, {name}_arena *a, {name}_output *out)",
        "{",
        *block(["(void)s; (void)a; (void)out;", *late]),
        "}",
        "",
        f"int {name}_step({arguments})",
        "{",
        *block([*guard, f"{name}_advance(s, a, in, out);", *finish, "return 0;"]),
        "}",
        "",
        f"int {name}_run({name}_state *s, {name}_arena *a, const uint8_t *in, uint32_t steps,",
        f"    {name}_output *out)",
        "{",
        *block([
            f"if ({refuse}) {{",
            "  return 1;",
            "}",
            f"{name}_reset(s);",
            "for (uint32_t t = 0; t < steps; t++) {",
            f"  {name}_advance(s, a, in{moves}, {target});",
            "}",
            f"{name}_finish(s, a, {end});",
            "return 0;",
        ]),
        "}",
        "",
    ]  # fmt: skip


def _counted(model: Model) -> bool:
    """Whether something depends on how many steps there were."""
    sums = any(isinstance(op, TimeSum) for op in model.program.operations)
    return sums or any(("steps",) in out.scalings for out in model.program.outputs)

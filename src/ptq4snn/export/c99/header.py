"""NAME.h: what the caller sees, with what it costs."""

from __future__ import annotations

from math import prod

import numpy as np

from ptq4snn.export.c99.figures import Figures
from ptq4snn.export.c99.levels import level_count, quantizers
from ptq4snn.export.c99.names import comment
from ptq4snn.export.c99.outputs import decoder_type, output_type, scales_of
from ptq4snn.export.c99.source import Written, fixed_steps, stateful
from ptq4snn.export.c99.storage import MEMBERS
from ptq4snn.export.c99.text import size_of
from ptq4snn.network.program import Delay, Neuron, TimeSum
from ptq4snn.runtime.state import rows_of

__all__ = ["facts", "header_lines"]

MANY = 16  # scales that are written out


def facts(f: Figures) -> list[str]:
    """Sentences of what it costs."""
    wide = f"64-bit numbers in {len(f.wide)} operations" if f.wide else "no 64-bit numbers"
    return [
        f"flash {f.flash:,} bytes: weights {f.weights:,}, tables {f.tables:,}, code about {f.code:,}",
        f"RAM   {f.ram:,} bytes: state {f.state:,} for each session, arena {f.arena:,} for all",
        f"step  {f.additions:,} additions of {f.products:,} dense products, {f.updates:,} neurons, {wide}",
    ]


def header_lines(written: Written) -> list[str]:
    ctx = written.ctx
    name, guard, model = ctx.name, f"{ctx.name.upper()}_H", ctx.model
    each = any(out.time_axis is not None for out in model.program.outputs)
    return [
        "/* A quantized spiking network in C99, written by ptq4snn. Integers only; nothing is allocated.",
        "",
        *(f"   {line}" for line in facts(written.figures)),
        "",
        *_use(written, each),
        "*/",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        f"#define {name.upper()}_LEVELS {level_count(ctx)} /* bytes of one step's input */",
        f"#define {name.upper()}_STEPS {model.program.steps} /* of the calibration */",
        f"#define {name.upper()}_MOST_STEPS {written.steps}U /* of a sequence */",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_state(written),
        *_arena(written),
        *_outputs(written),
        *_prototypes(name),
        *_floats(written),
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {guard} */",
        "",
    ]


def _use(written: Written, each: bool) -> list[str]:
    ctx = written.ctx
    name, program = ctx.name, ctx.model.program
    shown = "the same image at every step" if program.input.time_axis is None else "one frame after the other"
    places = []
    for op in quantizers(ctx):
        v, place = program.values[op.output], ctx.plan.places[op.output]
        places.append(
            f"   levels[{place.offset} + p * {v.channels} + c], p < {v.positions}, c < {v.channels}"
        )
    return [
        f"   Input: levels 0 .. 255, {shown}; position p and channel c stand at",
        *places,
        f"   {name}_levels makes them of floats in the model's own order, with {name.upper()}_FLOAT.",
        "",
        f"   {name}_reset(s)                    the session s begins anew",
        f"   {name}_step(s, a, levels, out)     one time step; 0, or 1 after {name.upper()}_MOST_STEPS steps",
        f"   {name}_run(s, a, levels, T, out)   a whole sequence from rest; 0, or 1 where T cannot be",
        "",
        "   Each session has a state; the arena holds nothing between two calls, so that sessions that do",
        f"   not run at the same time share one. {_sequence(each)}",
        *(
            ["   The network reads a mean over time: outputs are there after the last step only."]
            if fixed_steps(ctx.model)
            else []
        ),
    ]


def _sequence(each: bool) -> str:
    return (
        "Of a sequence, out has one entry for every step."
        if each
        else "Of a sequence, out is that of its end."
    )


def _state(written: Written) -> list[str]:
    ctx = written.ctx
    lines = [
        "/* states, packed at their widths: rows of fields, the widest first, lowest bits first */",
        "typedef struct {",
    ]
    lines.append("  uint32_t steps; /* since the reset */")
    arrays = []
    for op in stateful(ctx.model):
        if isinstance(op, TimeSum):
            place = ctx.plan.places[op.output]
            size = place.value.positions * place.value.channels
            arrays.append(
                (
                    size_of(place.type),
                    f"  {place.type} t{op.output}[{size}]; /* sum over time {comment(op.name)} */",
                )
            )
        else:
            assert isinstance(op, (Delay, Neuron))
            rows = rows_of(ctx.model, op)
            widths = ", ".join(f"{n} x {w} bits" for w, n in rows.widths)
            letter = "d" if isinstance(op, Delay) else "n"
            note = f"{comment(op.name)}: {rows.count} rows of {widths}"
            arrays.append((1, f"  uint8_t {letter}{op.output}[{rows.count * rows.size}]; /* {note} */"))
    lines += [line for _, line in sorted(arrays, key=lambda x: -x[0])]
    return [*lines, f"}} {ctx.name}_state;", ""]


def _arena(written: Written) -> list[str]:
    size = -(-max(8, written.ctx.plan.arena) // 8) * 8
    members = [f"  {kind} {member}[{size // size_of(kind)}];" for kind, member in MEMBERS.items()]
    if "a->i64" not in "\n".join(written.lines):
        members = [m for m in members if "i64" not in m]
    return [
        "/* values of the step at hand */",
        "typedef union {",
        *members,
        f"}} {written.ctx.name}_arena;",
        "",
    ]


def _outputs(written: Written) -> list[str]:
    model, name = written.ctx.model, written.ctx.name
    lines: list[str] = []
    fields = []
    for n, out in enumerate(model.program.outputs):
        shape = " x ".join(map(str, out.shape)) or "one number"
        scales, rest = scales_of(model, out)
        flat = np.unique(scales)
        macro = f"{name.upper()}_SCALE{n}"
        worth = {"count": "counts", "current": "currents", "potential": "potentials"}[out.kind]
        by = "".join(
            f", {'divided by the steps' if len(s) == 1 else f'{s[0]} {float(s[1])!r}'}" for s in out.scalings
        )
        if len(flat) == 1:
            lines.append(f"#define {macro} {float(flat[0])!r}")
        elif scales.ndim and prod(scales.shape) <= MANY:
            lines.append(f"#define {macro} {{{', '.join(repr(float(x)) for x in scales.reshape(-1))}}}")
        else:
            lines.append(f"/* {macro}: one for each channel, in {name}_decode{n} */")
        more = f" + {rest!r}" if rest else ""
        more += "".join(f"; {name}_decode{n} takes their {how}" for how, _ in out.then)
        fields.append(
            f"  {output_type(model, out)} o{n}[{prod(out.shape)}]; "
            f"/* {shape}, {worth}{by}; one is worth {macro}{more} */"
        )
    return [*lines, "typedef struct {", *fields, f"}} {name}_output;", ""]


def _prototypes(name: str) -> list[str]:
    return [
        f"void {name}_reset({name}_state *s);",
        f"int {name}_step({name}_state *s, {name}_arena *a, const uint8_t *in, {name}_output *out);",
        f"int {name}_run({name}_state *s, {name}_arena *a, const uint8_t *in, uint32_t steps,",
        f"    {name}_output *out);",
        "",
    ]


def _floats(written: Written) -> list[str]:
    name, model = written.ctx.name, written.ctx.model
    size = prod(model.program.input.shape)
    lines = [
        f"#ifdef {name.upper()}_FLOAT",
        f"void {name}_levels(const float *x, uint8_t *levels); /* of {size} numbers */",
    ]
    for n, out in enumerate(model.program.outputs):
        lines.append(
            f"void {name}_decode{n}(const {name}_output *out, uint32_t steps, {decoder_type(out)} *y);"
        )
    return [*lines, "#endif"]

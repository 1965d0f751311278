"""Exported C at work: compiled, run step by step on floats, and everything it makes written down.

For every step the program writes its levels, spikes, states, sums, outputs and decoded outputs; `expected`
makes the same bytes with the NumPy executor.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.export.c99.export import Choices, CSource, generate
from ptq4snn.export.c99.plan import plan_of
from ptq4snn.export.c99.source import fixed_steps, stateful
from ptq4snn.network.program import Delay, Neuron, Quantize, TimeSum
from ptq4snn.runtime.decode import Decoder
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZED = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Case:
    """A model, its source, and the inputs [T, N] of a sequence (one row where it is a still image)."""

    model: Model
    source: CSource
    frames: np.ndarray[Any, Any]
    steps: int

    def frame(self, t: int) -> np.ndarray[Any, Any]:
        return self.frames[t % len(self.frames)]


def case(model: Model, name: str, x: np.ndarray[Any, Any], length: int, **options: Any) -> Case:
    """x has the axes of the model's input and one sample."""
    program = model.program
    axes: tuple[int, ...] = (program.input.batch_axis,)
    if program.input.time_axis is not None:
        axes = (program.input.time_axis, *axes)
    frames = np.moveaxis(x, axes, tuple(range(len(axes)))).reshape(-1, int(np.prod(program.input.shape)))
    return Case(
        model,
        generate(model, name, Choices(**options)),
        np.ascontiguousarray(frames, dtype=np.float32),
        length,
    )


def expected(case: Case) -> bytes:
    """What the C program must write."""
    model, program = case.model, case.model.program
    executor, state = NumpyExecutor(model), State.new(model, 1)
    neurons = [op for op in program.operations if isinstance(op, Neuron)]
    levels = [op.output for op in program.operations if isinstance(op, Quantize)]
    keep = sorted({*(op.output for op in neurons), *levels, *(out.value for out in program.outputs)})
    order = [g.root for g in plan_of(model).groups]
    decoders = [Decoder(model, out) for out in program.outputs]
    parts: list[bytes] = []
    shown = [np.zeros(int(np.prod(out.shape)), dtype=np.int64) for out in program.outputs]
    for t in range(case.steps):
        values = executor.execute(case.frame(t)[None, None], 1, state, keep, 1)
        last = not fixed_steps(model) or state.steps == program.steps
        parts += [values[v].astype(np.uint8).tobytes() for v in levels]
        for op in sorted(neurons, key=lambda op: order.index(program.operations.index(op))):
            if last or not op.once:
                number = program.operations.index(op)
                parts += [np.int32(number).tobytes(), values[op.output].astype(np.uint8).tobytes()]
        for kept in stateful(model):
            if isinstance(kept, TimeSum):
                parts.append(state.sums[kept.output].astype(np.int64).tobytes())
            else:
                parts.append(state.rows[kept.output].tobytes())
        for n, (out, decoder) in enumerate(zip(program.outputs, decoders, strict=True)):
            if last or program.values[out.value].time:
                shown[n] = values[out.value].reshape(-1)[out.index.array()]
            parts.append(shown[n].tobytes())
            if not fixed_steps(model):
                y = decoder(values[out.value], 1, state.steps)
                parts.append(_flat(y, out).astype(np.float64).tobytes())
    return b"".join(parts)


def _flat(y: Any, out: Any) -> Any:
    """A decoded output of one sample and one step, in the order of its shape."""
    batch, time = out.given_axes
    axes = [batch] if time is None else [time, batch]
    return np.moveaxis(y, axes, list(range(len(axes)))).reshape(-1)


def driver(cases: Sequence[Case]) -> str:
    """main.c for all cases: `take` reads the inputs, `give` writes what was made (port.h)."""
    lines = ["#include <stddef.h>", "#include <stdint.h>", "#include <string.h>", '#include "port.h"', TRACE]
    for one in cases:
        lines += _one(one)
    lines += ["int main(void)", "{", "  port_open();"]
    lines += [f"  if (run_{one.source.name}()) {{ return 4; }}" for one in cases]
    return "\n".join([*lines, "  port_close();", "  return 0;", "}", ""])


TRACE = """
static int silent;
void trace(int number, const void *row, int size, unsigned width, unsigned positions, unsigned channels)
{
  const uint32_t each = 8U * (uint32_t)size / width, words = (channels + each - 1U) / each;
  const int32_t name = number;
  if (silent) {
    return;
  }
  give(&name, 4);
  for (uint32_t p = 0; p < positions; p++) {
    for (uint32_t c = 0; c < channels; c++) {
      const uint32_t at = p * words + c / each;
      const uint32_t word = size == 1 ? ((const uint8_t *)row)[at]
                            : size == 2 ? ((const uint16_t *)row)[at] : ((const uint32_t *)row)[at];
      const uint8_t spikes = (uint8_t)((word >> (c % each * width)) & ((1U << width) - 1U));
      give(&spikes, 1);
    }
  }
}
static void whole(int64_t x) { give(&x, 8); }
static void real(double x) { give(&x, 8); }
"""
PORT = """
void trace(int, const void *, int, unsigned, unsigned, unsigned);
void port_open(void);
void port_close(void);
void take(void *to, unsigned size);
void give(const void *from, unsigned size);
"""
HOST = """
#include "port.h"
#include <stdio.h>
#include <stdlib.h>
static FILE *from, *to;
void port_open(void)
{
  from = fopen("in.bin", "rb");
  to = fopen("out.bin", "wb");
  if (!from || !to) { exit(3); }
}
void port_close(void) { fclose(from); fclose(to); }
void take(void *x, unsigned size) { if (fread(x, 1, size, from) != size) { exit(5); } }
void give(const void *x, unsigned size) { fwrite(x, 1, size, to); }
"""
BOARD = """
#include "port.h"
#include "semihosting.h"
#include <string.h>
static int from, to;
static unsigned char buffer[4096];
static unsigned held;
void port_open(void) { from = host_open("in.bin", 0); to = host_open("out.bin", 1); }
static void flush(void) { host_write(to, buffer, held); held = 0; }
void port_close(void) { flush(); host_close(from); host_close(to); }
void take(void *x, unsigned size) { if (host_read(from, x, size)) { host_exit(5); } }
void give(const void *x, unsigned size)
{
  if (held + size > sizeof(buffer)) { flush(); }
  if (size > sizeof(buffer)) { host_write(to, x, size); return; }
  memcpy(&buffer[held], x, size);
  held += size;
}
"""


def _one(case: Case) -> list[str]:
    name, big, T = case.source.name, case.source.name.upper(), case.steps
    inputs, program = case.frames.shape[1], case.model.program
    lines = [f"#define {big}_FLOAT", f'#include "{name}.h"', f"static int run_{name}(void)", "{"]
    lines += [f"  static {name}_state s, other;", f"  static {name}_arena a;", f"  static float x[{inputs}];"]
    lines += [
        f"  static {name}_output out[{T}], whole_run[{T}];",
        f"  static uint8_t levels[{T} * {big}_LEVELS];",
    ]
    lines += [f"  {name}_reset(&s);", f"  for (int t = 0; t < {T}; t++) {{"]
    lines += [f"    uint8_t *now = &levels[t * {big}_LEVELS];", "    if (t > 0) { out[t] = out[t - 1]; }"]
    lines += [f"    take(x, {4 * inputs});", f"    {name}_levels(x, now);", f"    give(now, {big}_LEVELS);"]
    lines += [f"    if ({name}_step(&s, &a, now, &out[t])) {{ return 1; }}"]
    lines += [f"    {line}" for line in (*_states(case.model), *_outputs(case))]
    lines += ["  }", "  silent = 1;"]
    # the same sequence at once, in another session
    each = any(o.time_axis is not None for o in program.outputs)
    lines += [f"  if ({name}_run(&other, &a, levels, {T}, whole_run)) {{ return 2; }}", "  silent = 0;"]
    last = f"whole_run[{T - 1 if each else 0}]"
    lines += ["  if (memcmp(&s, &other, sizeof s)) { return 3; }"]
    for n, out in enumerate(program.outputs):
        lines.append(f"  if (memcmp(out[{T - 1}].o{n}, {last}.o{n}, sizeof out[0].o{n})) {{ return 4; }}")
        if each and program.values[out.value].time:
            lines.append(f"  for (int t = 0; t < {T}; t++) {{")
            lines.append(
                f"    if (memcmp(out[t].o{n}, whole_run[t].o{n}, sizeof out[0].o{n})) {{ return 5; }}"
            )
            lines.append("  }")
    return [*lines, "  return 0;", "}"]


def _states(model: Model) -> list[str]:
    lines = []
    for op in stateful(model):
        if isinstance(op, TimeSum):
            count = f"sizeof(s.t{op.output}) / sizeof(s.t{op.output}[0])"
            lines.append(f"for (size_t i = 0; i < {count}; i++) {{ whole((int64_t)s.t{op.output}[i]); }}")
        else:
            field = f"s.{'d' if isinstance(op, Delay) else 'n'}{op.output}"
            lines.append(f"give({field}, sizeof({field}));")
    return lines


def _outputs(case: Case) -> list[str]:
    lines = []
    for n, out in enumerate(case.model.program.outputs):
        size = int(np.prod(out.shape))
        kind = {"float64": "double", "float32": "float", "int64": "int64_t"}[out.given_type]
        given = int(np.prod(out.given_shape))
        lines.append(f"for (int i = 0; i < {size}; i++) {{ whole((int64_t)out[t].o{n}[i]); }}")
        if not fixed_steps(case.model):
            lines += [f"{{ static {kind} y[{size}]; {case.source.name}_decode{n}(&out[t], s.steps, y);"]
            lines += [f"  for (int i = 0; i < {given}; i++) {{ real((double)y[i]); }} }}"]
    return lines


def build(
    cases: Sequence[Case], folder: Path, compiler: str, flags: Sequence[str], board: Sequence[Path] = ()
) -> Path:
    """The program of all cases, for this machine or, with the sources of one, for a board."""
    (folder / "port.h").write_text(PORT)
    (folder / "port.c").write_text(BOARD if board else HOST)
    (folder / "main.c").write_text(driver(cases))
    objects = []
    for one in cases:
        for file, content in one.source.files.items():
            (folder / file).write_bytes(content)
        name = one.source.name
        hook = [f"-D{name.upper()}_TRACE=trace", f"-D{name.upper()}_FLOAT", "-include", "port.h"]
        objects.append(f"{name}.o")
        run([compiler, *STRICT, *flags, *hook, "-c", f"{name}.c", "-o", objects[-1]], folder)
    sources = ["main.c", "port.c", *map(str, board)]
    run(
        [compiler, "-std=gnu99" if board else "-std=c99", *flags, *sources, *objects, "-o", "program"], folder
    )
    return folder / "program"


def has_sanitizers(compiler: str, folder: Path) -> bool:
    """Whether the compiler can link them: some distributions have their libraries in another package."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    command = [compiler, *SANITIZED, "empty.c", "-o", "empty"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def results(program: Path, cases: Sequence[Case], emulator: Sequence[str] = ()) -> bytes:
    """What the program writes."""
    folder = program.parent
    frames = [case.frame(t) for case in cases for t in range(case.steps)]
    (folder / "in.bin").write_bytes(b"".join(f.tobytes() for f in frames))
    (folder / "out.bin").unlink(missing_ok=True)
    run([*emulator, str(program)], folder)
    return (folder / "out.bin").read_bytes()


def compare(cases: Sequence[Case], found: bytes) -> None:
    """That it is what the NumPy executor makes."""
    begin = 0
    for one in cases:
        wanted = expected(one)
        mine = np.frombuffer(found[begin : begin + len(wanted)], np.uint8)
        assert np.array_equal(mine, np.frombuffer(wanted, np.uint8)), one.source.name
        begin += len(wanted)
    assert begin == len(found)


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout

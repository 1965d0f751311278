"""Exported C at work: compiled, run step by step on floats, and everything it makes written down.

For every step the program writes its levels, spikes, states, sums, outputs and decoded outputs; `expected` makes the
same bytes with the NumPy executor.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.export.c99.export import CSource, generate
from ptq4snn.export.c99.plan import plan_of
from ptq4snn.export.c99.source import fixed_steps, stateful
from ptq4snn.network.program import Delay, Neuron, Quantize, TimeSum
from ptq4snn.runtime.decode import Decoder
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.reference import NumpyExecutor
from ptq4snn.runtime.state import State

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Case:
    """A model, its source, and the inputs [T, N] of a sequence (one row where it is a still image)."""

    model: Model
    source: CSource
    frames: np.ndarray[Any, Any]
    steps: int

    def frame(self, t: int) -> np.ndarray[Any, Any]:
        return self.frames[t % len(self.frames)]


def case(model: Model, name: str, x: np.ndarray[Any, Any], steps: int, **options: Any) -> Case:
    """x has the axes of the model's input and one sample."""
    program = model.program
    axes = (program.input.batch_axis,)
    if program.input.time_axis is not None:
        axes = (program.input.time_axis, *axes)
    frames = np.moveaxis(x, axes, tuple(range(len(axes)))).reshape(-1, int(np.prod(program.input.shape)))
    return Case(model, generate(model, name, **options), np.ascontiguousarray(frames, dtype=np.float32), steps)


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
        for op in stateful(model):
            if isinstance(op, TimeSum):
                parts.append(state.sums[op.output].astype(np.int64).tobytes())
            else:
                parts.append(state.rows[op.output].tobytes())
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
    axes = [out.batch_axis] if out.time_axis is None else [out.time_axis, out.batch_axis]
    return np.moveaxis(y, axes, list(range(len(axes)))).reshape(-1)


def driver(cases: Sequence[Case]) -> str:
    """main.c for all cases; inputs come from a file, the rest goes to another."""
    lines = ["#include <stdint.h>", "#include <stdio.h>", "static FILE *to;"]
    lines += [TRACE, FLOATS]
    for one in cases:
        lines += _one(one)
    lines += ["int main(int argc, char **argv)", "{", "  FILE *from;", "  if (argc != 3) { return 2; }"]
    lines += ['  from = fopen(argv[1], "rb"); to = fopen(argv[2], "wb");', "  if (!from || !to) { return 3; }"]
    lines += [f"  if (run_{one.source.name}(from)) {{ return 4; }}" for one in cases]
    return "\n".join([*lines, "  fclose(from); return fclose(to);", "}", ""])


TRACE = """
void trace(int32_t number, const void *row, int size, uint32_t positions, uint32_t channels);
void trace(int32_t number, const void *row, int size, uint32_t positions, uint32_t channels)
{
  const uint32_t each = 8U * (uint32_t)size, words = (channels + each - 1U) / each;
  fwrite(&number, 4, 1, to);
  for (uint32_t p = 0; p < positions; p++) {
    for (uint32_t c = 0; c < channels; c++) {
      const uint32_t at = p * words + c / each;
      const uint32_t word = size == 1 ? ((const uint8_t *)row)[at]
                            : size == 2 ? ((const uint16_t *)row)[at] : ((const uint32_t *)row)[at];
      const uint8_t bit = (uint8_t)((word >> (c % each)) & 1U);
      fwrite(&bit, 1, 1, to);
    }
  }
}"""
FLOATS = "static void whole(int64_t x) { fwrite(&x, 8, 1, to); }\nstatic void real(double x) { fwrite(&x, 8, 1, to); }"


def _one(case: Case) -> list[str]:
    name, program = case.source.name, case.model.program
    big, inputs = name.upper(), case.frames.shape[1]
    lines = [f"#define {big}_FLOAT", f'#include "{name}.h"', f"static int run_{name}(FILE *from)", "{"]
    lines += [f"  static {name}_state s; static {name}_arena a; static {name}_output out; static float x[{inputs}];"]
    lines += [f"  static uint8_t levels[{big}_LEVELS];", f"  {name}_reset(&s);"]
    lines += [f"  for (int t = 0; t < {case.steps}; t++) {{", f"    if (fread(x, 4, {inputs}, from) != {inputs}) {{ return 1; }}"]
    lines += [f"    {name}_levels(x, levels);", f"    fwrite(levels, 1, {big}_LEVELS, to);"]
    lines += [f"    if ({name}_step(&s, &a, levels, &out)) {{ return 1; }}"]
    for op in stateful(case.model):
        if isinstance(op, TimeSum):
            count = f"sizeof(s.t{op.output}) / sizeof(s.t{op.output}[0])"
            lines.append(f"    for (size_t i = 0; i < {count}; i++) {{ whole((int64_t)s.t{op.output}[i]); }}")
        else:
            field = f"s.{'d' if isinstance(op, Delay) else 'n'}{op.output}"
            lines.append(f"    fwrite({field}, 1, sizeof({field}), to);")
    for n, out in enumerate(program.outputs):
        size = int(np.prod(out.shape))
        kind = "double" if out.kind == "count" and out.dtype == "float64" else "float"
        lines.append(f"    for (int i = 0; i < {size}; i++) {{ whole((int64_t)out.o{n}[i]); }}")
        if not fixed_steps(case.model):
            lines += [f"    {{ static {kind} y[{size}]; {name}_decode{n}(&out, s.steps, y);"]
            lines += [f"      for (int i = 0; i < {size}; i++) {{ real((double)y[i]); }} }}"]
    return [*lines, "  }", "  return 0;", "}"]


def build(cases: Sequence[Case], folder: Path, compiler: str, flags: Sequence[str]) -> Path:
    """The program of all cases."""
    objects = []
    declared = "void trace(int, const void *, int, unsigned, unsigned);"
    (folder / "trace.h").write_text(declared + "\n")
    for one in cases:
        for file, content in one.source.files.items():
            (folder / file).write_bytes(content)
        name = one.source.name
        hook = [f"-D{name.upper()}_TRACE=trace", f"-D{name.upper()}_FLOAT", "-include", str(folder / "trace.h")]
        objects.append(str(folder / f"{name}.o"))
        run([compiler, *STRICT, *flags, *hook, "-c", f"{name}.c", "-o", objects[-1]], folder)
    (folder / "main.c").write_text(driver(cases))
    program = folder / "program"
    run([compiler, "-std=c99", *flags, "main.c", *objects, "-o", str(program)], folder)
    return program


def results(program: Path, cases: Sequence[Case], before: Sequence[str] = ()) -> bytes:
    """What the program writes."""
    folder = program.parent
    frames = [case.frame(t) for case in cases for t in range(case.steps)]
    (folder / "in.bin").write_bytes(b"".join(f.tobytes() for f in frames))
    run([*before, str(program), "in.bin", "out.bin"], folder)
    return (folder / "out.bin").read_bytes()


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout

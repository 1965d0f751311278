"""Exported C against the same network as float C and as int8 C with 32-bit states, both dense.

    python benchmarks/export_c.py

The embedded default, quantized by `w4m4`, as it is and with a first state of 4 bits; and with thresholds
lowered until 15 % of its neurons fire. All three programs are compiled by the same compiler with the same
options for a Cortex-M4 and run in turn on qemu's board, which counts instructions (`-icount`: one is one
nanosecond, and SysTick counts these); on this machine callgrind counts. Flash is what the linker places there
(code and constants), RAM the state and the arena. The figures go to benchmarks/export_c.json and into
docs/deploy.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from export_c_parts.dense import Dense, head_of

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.experiments.compare import today
from ptq4snn.export.c99.export import Choices, generate
from ptq4snn.files import write_whole
from ptq4snn.models.zoo import load_default
from ptq4snn.network.program import Neuron, Quantize
from ptq4snn.runtime import Runtime
from ptq4snn.runtime.loading import build, load_model_file
from ptq4snn.runtime.parameters import Model

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "export_c.json", HERE.parent / "docs" / "deploy.md"
BOARD = HERE.parent / "examples" / "microcontroller" / "board"
ARM = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2"]
LINK = ["-nostartfiles", "-specs=nosys.specs", f"-T{BOARD / 'mps2.ld'}", f"-I{BOARD}"]
QEMU = [
    "qemu-system-arm", "-machine", "mps2-an386", "-icount", "shift=0", "-display", "none", "-monitor", "none",
    "-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel",
]  # fmt: skip
TICK = 40  # nanoseconds of the board's 25 MHz clock: instructions with shift=0
FIRING = 0.15

MAIN = """
#include "net.h"
#include "image.h"
#include "port.h"
static net_state state;
static net_arena arena;
int main(void)
{
  RESET
  for (int t = 0; t < 4; t++) {
    begin();
    STEP
    end();
  }
  for (int i = 0; i < 10; i++) {
    tell((long)(HEAD[i] * WORTH));
  }
  return 0;
}
"""
BOARD_PORT = """
#include "port.h"
#include "semihosting.h"
#include <stdint.h>
#define SYST ((volatile uint32_t *)0xE000E010)
static void line(const char *what, long x)
{
  char text[40], *at = &text[39];
  unsigned long y = x < 0 ? 0UL - (unsigned long)x : (unsigned long)x;
  *at = 0; *--at = '\\n';
  do { *--at = (char)('0' + y % 10); } while (y /= 10);
  if (x < 0) { *--at = '-'; }
  host_print(what); host_print(at);
}
void begin(void) { SYST[1] = 0xFFFFFF; SYST[2] = 0; SYST[0] = 5; while (SYST[2] == 0) { } }
void end(void) { line("ticks ", (long)(0xFFFFFF - SYST[2])); SYST[0] = 0; }
void tell(long x) { line("head ", x); }
"""
HOST_PORT = """
#include "port.h"
#include <stdio.h>
void begin(void) { }
void end(void) { }
void tell(long x) { printf("head %ld\\n", x); }
"""


def quantized(folder: Path, **options: Any) -> Model:
    q = ptq4snn.quantize(
        load_default(), normalize(default_sample()[0][:512]), "w4m4", progress=False, **options
    )
    q.save(folder / "model.ptq")
    return load_model_file(folder / "model.ptq")


def firing(model: Model, x: Any) -> float:
    """The share of neurons that fire, all alike."""
    spikes = [found["spikes"] for found in Runtime(model).trace(x).values()]
    return float(sum(s.sum() for s in spikes) / sum(s.size for s in spikes))


def livelier(model: Model, x: Any, rate: float) -> Model:
    """The model with thresholds lowered until so many fire."""

    def scaled(by: float) -> Model:
        neurons = {
            k: replace(n, theta=np.rint(n.theta * by).astype(np.int64)) for k, n in model.neurons.items()
        }
        return build(model.program, model.projections, neurons, model.mirrors)

    low, high = 0.2, 1.5
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if firing(scaled(middle), x) > rate else (low, middle)
    return scaled(high)


def levels(model: Model, x: Any) -> tuple[Any, Any]:
    """One image as levels, and as the floats that these stand for."""
    op = next(op for op in model.program.operations if isinstance(op, Quantize))
    grid = model.projections[op.name].input
    assert grid is not None
    flat = (
        x.reshape(-1)[op.index.array()]
        .astype(np.float64)
        .reshape(-1, model.program.values[op.output].channels)
    )
    p = np.clip(np.rint(flat / grid.scales + grid.zeros / 2**16), 0, 255)
    reals = (p - grid.zeros / 2**16) * grid.scales
    return p.astype(int).reshape(-1), reals.reshape(-1)


def contenders(model: Model, x: Any) -> dict[str, dict[str, str]]:
    """Files of every program, all with the same entry points."""
    whole, reals = levels(model, x)
    exported = generate(model, "net", Choices(steps=model.program.steps)).files
    head = head_of(model)
    out = {"exported": {k: v.decode() for k, v in exported.items()}}
    out["exported"]["main.c"] = _main(
        "net_reset(&state);", "static net_output out; net_step(&state, &arena, image, &out);", head, "1"
    )
    out["exported"]["image.h"] = _image("uint8_t", map(str, whole))
    for kind in ("int8", "float"):
        dense = Dense(model, kind)
        text = dense.source()
        worth = "1" if kind == "int8" else "10000.0f"
        out[kind] = {"net.h": dense.header(), "net.c": f'#include "net.h"\n{text}'}
        out[kind]["main.c"] = _main("", "net_step(&state, &arena, image);", head, worth)
        out[kind]["image.h"] = (
            _image("uint8_t", map(str, whole))
            if kind == "int8"
            else _image("float", (f"{v:.9e}f" for v in reals))
        )
    return out


def _main(reset: str, step: str, head: int, worth: str) -> str:
    return (
        MAIN.replace("RESET", reset)
        .replace("STEP", step)
        .replace("HEAD", f"state.t{head}")
        .replace("WORTH", worth)
    )


def _image(kind: str, values: Any) -> str:
    text = list(values)
    return f"#include <stdint.h>\nstatic const {kind} image[{len(text)}] = {{{', '.join(text)}}};\n"


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def measure(files: dict[str, str], folder: Path) -> dict[str, Any]:
    """Bytes and instructions of one program."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "port.h").write_text("void begin(void);\nvoid end(void);\nvoid tell(long x);\n")
    (folder / "port.c").write_text(BOARD_PORT)
    board = [str(BOARD / "cortex_m.c"), str(BOARD / "semihosting.c")]
    run([*ARM, "-c", "net.c", "-o", "net.o"], folder)
    run([*ARM, "main.c", "port.c", *board, "net.o", *LINK, "-o", "net.elf"], folder)
    code, data = map(
        int, re.findall(r"^\s*(\d+)\s+(\d+)", run(["arm-none-eabi-size", "net.o"], folder), re.M)[0]
    )
    symbols = dict(
        re.findall(r"^\w+ (\w+) \w (state|arena)$", run(["arm-none-eabi-nm", "-S", "net.elf"], folder), re.M)[
            i
        ][::-1]
        for i in range(2)
    )
    said = run([*QEMU, "net.elf"], folder)
    ticks = [int(t) for t in re.findall(r"ticks (-?\d+)", said)]
    out = {
        "flash": code + data,
        "state": int(symbols["state"], 16),
        "arena": int(symbols["arena"], 16),
        "instructions": TICK * sum(ticks) / len(ticks),
        "class": int(np.argmax([int(h) for h in re.findall(r"head (-?\d+)", said)])),
    }
    if shutil.which("valgrind"):
        (folder / "port.c").write_text(HOST_PORT)
        run(["gcc", "-O2", "-I.", "main.c", "port.c", "net.c", "-o", "host"], folder)
        count = run(
            [
                "valgrind",
                "--tool=callgrind",
                "--toggle-collect=net_step",
                "--callgrind-out-file=/dev/null",
                "./host",
            ],
            folder,
        )
        out["host"] = int(re.findall(r"Collected : (\d+)", count)[0]) / 4
    return out


def compare(model: Model, x: Any, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    found = {name: measure(files, folder / name) for name, files in contenders(model, x).items()}
    neurons = sum(
        model.program.values[op.output].positions * model.program.values[op.output].channels
        for op in model.program.operations
        if isinstance(op, Neuron)
    )
    ours = found["exported"]
    ratios = {
        "state_under_float": found["float"]["state"] / ours["state"],
        "flash_under_float": found["float"]["flash"] / ours["flash"],
        "ram_under_float": (found["float"]["state"] + found["float"]["arena"])
        / (ours["state"] + ours["arena"]),
        "instructions_under_int8": found["int8"]["instructions"] / ours["instructions"],
        "instructions_under_float": found["float"]["instructions"] / ours["instructions"],
    }
    return {"firing": firing(model, x), "neurons": neurons, "programs": found, "ratios": ratios}


def table(cases: dict[str, Any]) -> list[str]:
    lines = [
        "| network, one image | program | flash | state | arena | instructions a step, Cortex-M4 | x86-64 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, case in cases.items():
        for program, f in case["programs"].items():
            host = f"{f['host'] / 1e6:.1f} M" if "host" in f else ""
            shown = f"{name}, {100 * case['firing']:.1f} % firing" if program == "exported" else ""
            label = {"exported": "**exported**", "int8": "int8, dense", "float": "float, dense"}[program]
            lines.append(
                f"| {shown} | {label} | {f['flash']:,} | {f['state']:,} | {f['arena']:,} "
                f"| {f['instructions'] / 1e6:.1f} M | {host} |"
            )
    lines += [
        "",
        "| network | states under float | flash under float | RAM under float | instructions under int8 "
        "| under float |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, case in cases.items():
        r = case["ratios"]
        lines.append(f"| {name} | " + " | ".join(f"**{r[k]:.1f}x**" for k in r) + " |")
    return lines


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    x = normalize(default_sample()[1][:1]).numpy()
    cases = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = quantized(folder)
        cases["default, `w4m4`"] = compare(model, x, folder / "a")
        cases["the same, lower thresholds"] = compare(livelier(model, x, FIRING), x, folder / "b")
        cases["default, `w4m4`, first state of 4 bits"] = compare(
            quantized(folder, first_membrane=4), x, folder / "c"
        )
    lines = table(cases)
    print("\n".join(lines))
    write_whole(
        RESULTS,
        json.dumps(
            {
                "date": today(),
                "compiler": run(["arm-none-eabi-gcc", "--version"], HERE).splitlines()[0],
                "cases": cases,
            },
            indent=2,
        )
        + "\n",
    )
    text = PAGE.read_text(encoding="utf-8")
    marked = "<!-- export_c -->\n" + "\n".join(lines) + "\n<!-- end of export_c -->"
    write_whole(
        PAGE, re.sub(r"<!-- export_c -->.*?<!-- end of export_c -->", lambda _: marked, text, flags=re.S)
    )


if __name__ == "__main__":
    main()

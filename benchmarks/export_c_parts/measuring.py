"""Programs that are compared: compiled for a Cortex-M4 and for this machine, their bytes and instructions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from ptq4snn.network.program import Quantize
from ptq4snn.runtime import Runtime
from ptq4snn.runtime.parameters import Model

__all__ = ["firing", "image_text", "levels", "main_text", "measure", "run"]

BOARD = Path(__file__).parents[2] / "examples" / "microcontroller" / "board"
ARM = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2"]
LINK = ["-nostartfiles", "-specs=nosys.specs", f"-T{BOARD / 'mps2.ld'}", f"-I{BOARD}"]
QEMU = [
    "qemu-system-arm", "-machine", "mps2-an386", "-icount", "shift=0", "-display", "none", "-monitor", "none",
    "-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel",
]  # fmt: skip
TICK = 40  # nanoseconds of the board's 25 MHz clock: instructions with shift=0

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


def firing(model: Model, x: Any) -> float:
    """The share of neurons that fire, all alike."""
    spikes = [found["spikes"] for found in Runtime(model).trace(x).values()]
    return float(sum(s.sum() for s in spikes) / sum(s.size for s in spikes))


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


def main_text(reset: str, step: str, head: str, worth: str) -> str:
    return MAIN.replace("RESET", reset).replace("STEP", step).replace("HEAD", head).replace("WORTH", worth)


def image_text(kind: str, values: Any) -> str:
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

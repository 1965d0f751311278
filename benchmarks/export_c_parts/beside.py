"""A small network as we and as Qualia write it in C, measured alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from export_c_parts.measuring import firing, image_text, levels, main_text, measure, run
from export_c_parts.qualia import CLASSES, SIDE, STEPS, qualia_source
from export_c_parts.small import images, small, weights_of
from ptq4snn.export.c99.export import Choices, generate

__all__ = ["beside_qualia", "qualia_table"]

QUALIA_MAIN = """
#include "port.h"
#include <stdint.h>
void net_step(const int8_t *image, int8_t *out);
static int8_t image[SIDE * SIDE], out[CLASSES];
static char state[4], arena[4];
int main(void)
{
  for (int i = 0; i < SIDE * SIDE; i++) { image[i] = (int8_t)((i * 7) % 32); }
  for (int t = 0; t < STEPS; t++) {
    begin();
    net_step(image, out);
    end();
  }
  state[0] = arena[0] = 0;
  for (int i = 0; i < CLASSES; i++) { tell(out[i]); }
  return state[0] + arena[0];
}
"""
QUALIA_STEP = """
void net_step(const int8_t *image, int8_t *out);
void net_step(const int8_t *image, int8_t *out) { cnn(*(const input_t *)image, *(output_t *)out); }
"""


def beside_qualia(folder: Path) -> dict[str, Any] | None:
    """Ours, with the first state of the recipe and with one of 4 bits, and Qualia's; of 8-bit numbers."""
    folder.mkdir()
    text = qualia_source(weights_of(), folder)
    if text is None:
        return None
    x = images(1, 2).numpy()
    found: dict[str, Any] = {}
    for name, options in (("w4m4", {}), ("w4m4, first state of 4 bits", {"first_membrane": 4})):
        model = small(folder, **options)
        files = {k: v.decode() for k, v in generate(model, "net", Choices(steps=STEPS)).files.items()}
        reset = "net_reset(&state); static net_output out;"
        files["main.c"] = main_text(reset, "net_step(&state, &arena, image, &out);", "out.o0", "1")
        files["image.h"] = image_text("uint8_t", map(str, levels(model, x)[0]))
        found[name] = measure(files, folder / f"ours{len(found)}") | {"firing": firing(model, x)}
    sizes = {"SIDE": SIDE, "CLASSES": CLASSES, "STEPS": STEPS}
    program = QUALIA_MAIN
    for word, value in sizes.items():
        program = program.replace(word, str(value))
    files = {"net.c": text + QUALIA_STEP, "main.c": program}
    found["Qualia, int8"] = measure(files, folder / "qualia") | _static(folder / "qualia")
    for f in found.values():
        del f["class"]  # another image
    return found


def _static(folder: Path) -> dict[str, int]:
    """Qualia's variables are static: its potentials, and all others."""
    lines = re.findall(r"^\w+ (\w+) [bB] (\S+)$", run(["arm-none-eabi-nm", "-S", "net.o"], folder), re.M)
    state = sum(int(size, 16) for size, name in lines if name.endswith("_potent"))
    return {"state": state, "arena": sum(int(size, 16) for size, _ in lines) - state}


def qualia_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| program | flash | state | arena | instructions a step, Cortex-M4 | x86-64 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, f in found.items():
        shown = name
        if "firing" in f:
            shown = f"**exported**, {name}, {100 * f['firing']:.1f} % firing"
        host = f"{f['host'] / 1e6:.2f} M" if "host" in f else ""
        sizes = " | ".join(f"{f[k]:,}" for k in ("flash", "state", "arena"))
        lines.append(f"| {shown} | {sizes} | {f['instructions'] / 1e6:.2f} M | {host} |")
    return lines

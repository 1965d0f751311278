"""Exported C against the same network as float C and as int8 C with 32-bit states, both dense.

    python benchmarks/export_c.py

The embedded default, quantized by `w4m4`, as it is and with a first state of 4 bits; and with thresholds
lowered until 15 % of its neurons fire. All three programs are compiled by the same compiler with the same
options for a Cortex-M4 and run in turn on qemu's board, which counts instructions (`-icount`: one is one
nanosecond, and SysTick counts these); on this machine callgrind counts. Flash is what the linker places there
(code and constants), RAM the state and the arena. Beside them a small network as Qualia writes it, where it
is there (benchmarks/export_c_parts/qualia.py says how). The figures go to benchmarks/export_c.json and into
docs/deploy.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from export_c_parts.beside import beside_qualia, qualia_table
from export_c_parts.dense import Dense, head_of
from export_c_parts.measuring import firing, image_text, levels, main_text, measure, run

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.experiments.bench import today
from ptq4snn.export.c99.export import Choices, generate
from ptq4snn.files import write_whole
from ptq4snn.models.zoo import load_default
from ptq4snn.network.program import Neuron
from ptq4snn.runtime.loading import build, load_model_file
from ptq4snn.runtime.parameters import Model

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "export_c.json", HERE.parent / "docs" / "deploy.md"
FIRING = 0.15


def quantized(folder: Path, **options: Any) -> Model:
    q = ptq4snn.quantize(
        load_default(), normalize(default_sample()[0][:512]), "w4m4", progress=False, **options
    )
    q.save(folder / "model.ptq")
    return load_model_file(folder / "model.ptq")


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


def contenders(model: Model, x: Any) -> dict[str, dict[str, str]]:
    """Files of every program, all with the same entry points."""
    whole, reals = levels(model, x)
    exported = generate(model, "net", Choices(steps=model.program.steps)).files
    head = f"state.t{head_of(model)}"
    out = {"exported": {k: v.decode() for k, v in exported.items()}}
    out["exported"]["main.c"] = main_text(
        "net_reset(&state);", "static net_output out; net_step(&state, &arena, image, &out);", head, "1"
    )
    out["exported"]["image.h"] = image_text("uint8_t", map(str, whole))
    for kind in ("int8", "float"):
        dense = Dense(model, kind)
        text = dense.source()
        worth = "1" if kind == "int8" else "10000.0f"
        out[kind] = {"net.h": dense.header(), "net.c": f'#include "net.h"\n{text}'}
        out[kind]["main.c"] = main_text("", "net_step(&state, &arena, image);", head, worth)
        out[kind]["image.h"] = (
            image_text("uint8_t", map(str, whole))
            if kind == "int8"
            else image_text("float", (f"{v:.9e}f" for v in reals))
        )
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
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="only write the page")
    if not p.parse_args().write:
        write_whole(RESULTS, json.dumps(measured(), indent=2) + "\n")
    results = json.loads(RESULTS.read_text("utf-8"))
    print("\n".join(table(results["cases"])))
    write_whole(PAGE, written(results))


def measured() -> dict[str, Any]:
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
        qualia = beside_qualia(folder / "d")
    compiler = run(["arm-none-eabi-gcc", "--version"], HERE).splitlines()[0]
    return {"date": today(), "compiler": compiler, "cases": cases, "qualia": qualia}


def written(results: dict[str, Any]) -> str:
    """The page with the tables that the results give."""
    tables = {"export_c": table(results["cases"])}
    if results["qualia"] is not None:
        tables["qualia"] = qualia_table(results["qualia"])
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables.items():
        before, rest = text.split(f"<!-- {name} -->")
        whole = "\n".join([f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"])
        text = before + whole + rest.split(f"<!-- end of {name} -->")[1]
    return text


if __name__ == "__main__":
    main()

"""Exported ONNX in onnxruntime against our runtime and the float network in torch, taking turns in one run.

    python benchmarks/export_onnx.py

Trained networks, quantized by `nearest+w4m4` on the embedded images; one thread each. Every output of the
ONNX forms is compared with the runtime's, bit for bit, before it is timed. Figures go to
benchmarks/export_onnx.json and into docs/deploy.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from runtime_parts.floats import inference
from runtime_parts.machine import machine
from runtime_parts.timing import summary
from torch import Tensor

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.experiments.bench import today
from ptq4snn.export.onnx_form.export import onnx_model
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.runtime import Runtime
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.measure import interleave

HERE = Path(__file__).parent
BEGIN, END = "<!-- export_onnx -->", "<!-- end of export_onnx -->"
RESULTS, PAGE = HERE / "export_onnx.json", HERE.parent / "docs" / "deploy.md"
MODELS, BATCHES = ("default", "vgg8-32-cifar10", "sdt-2-128-cifar10"), (1, 16)
LABELS = {
    "float": "float, torch eager",
    "runtime": "our runtime",
    "scan": "ONNX, `scan`",
    "unrolled": "ONNX, `unrolled`",
    "step": "ONNX, `step`, called for each step",
}


def session(made: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def whole(run: Any, x: Tensor) -> Any:
    return run.run(None, {"x": x.numpy()})[0]


def stepped(run: Any, steps: int) -> Callable[[Any], Any]:
    """The step form, from rest over all steps."""
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    names = [o.name for o in run.get_outputs()]

    def work(x: Any) -> Any:
        shapes = {i.name: [len(x) if s == "batch" else s for s in i.shape] for i in run.get_inputs()}
        given = {i.name: np.zeros(shapes[i.name], types[i.type]) for i in run.get_inputs()} | {"x": x}
        for _ in range(steps):
            found = dict(zip(names, run.run(None, given), strict=True))
            given = {k: found.get(f"{k}_after", v) for k, v in given.items()}
        return found["y0"]

    return work


def contenders(name: str, folder: Path) -> dict[str, Callable[[Tensor], Any]]:
    model = TRAINED[name].load()
    q = ptq4snn.quantize(model, normalize(default_sample()[0][:128]), "nearest+w4m4", progress=False)
    q.save(folder / "m.ptq")
    loaded = load_model_file(folder / "m.ptq")
    runtime, runs = (
        Runtime(loaded),
        {form: session(onnx_model(loaded, form)) for form in ("scan", "unrolled")},
    )
    by_step = stepped(session(onnx_model(loaded, "step")), loaded.program.steps)
    out: dict[str, Callable[[Tensor], Any]] = {
        "float": inference(model),
        "runtime": lambda x: runtime(x.numpy()),
    }
    for form, run in runs.items():
        out[form] = partial(whole, run)
    out["step"] = lambda x: by_step(x.numpy())
    return out


def measure(name: str, folder: Path, rounds: int) -> list[dict[str, Any]]:
    works = contenders(name, folder)
    rows = []
    for batch in BATCHES:
        x = normalize(default_sample()[1][:batch])
        wanted = works["runtime"](x)
        for form in ("scan", "unrolled", "step"):
            if not np.array_equal(works[form](x), wanted):
                raise SystemExit(f"{name}: {form} does not give the runtime's bits")
        times = interleave({k: partial(w, x) for k, w in works.items()}, rounds)
        found = summary(times, batch, "float")
        rows.append({"model": name, "batch": batch, "contenders": found})
        print(f"{name}, batch {batch}: " + ", ".join(
            f"{k} {c['ms_per_image']:.2f} ms" for k, c in found.items()
        ), flush=True)  # fmt: skip
    return rows


def table(results: dict[str, Any]) -> list[str]:
    lines = [
        "| network | batch | " + " | ".join(LABELS.values()) + " |",
        "|---|---:|" + "---:|" * len(LABELS),
    ]
    for row in results["rows"]:
        cells = []
        for name in LABELS:
            c = row["contenders"][name]
            speed = "" if name == "float" else f", {c['speedup']:.1f}x"
            cells.append(f"{c['ms_least']:.2f} ms{speed}")
        lines.append(f"| `{row['model']}` | {row['batch']} | " + " | ".join(cells) + " |")
    made = results["machine"]
    note = "least ms an image, and the median over the rounds of how many times as fast as float; the "
    note += f"machine was busy with other work. {made['processor']}, one thread, onnxruntime "
    return [*lines, "", f"({note}{results['onnxruntime']}, torch {made['torch']}, {results['date']}.)"]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=9, help="of the interleaved runs")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    torch.set_num_threads(1)
    if not a.write:
        with tempfile.TemporaryDirectory() as folder:
            rows = [row for name in MODELS for row in measure(name, Path(folder), a.rounds)]
        versions = {"date": today(), "machine": machine(), "onnxruntime": onnxruntime.__version__}
        write_whole(RESULTS, json.dumps({**versions, "rows": rows}, indent=1) + "\n")
    write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return "\n".join([before + BEGIN, *table(results), END + rest.split(END)[1]])


if __name__ == "__main__":
    main()

"""Every trained model by the paper's states on nearest weights, on its whole test split (docs/results.md).

    python benchmarks/trained_models.py --data cifar10:DIR --data nmnist:FILE --data camvid:FILE

One `--data` for each data set; CIFAR10-DVS-sim is made from CIFAR-10. A model whose data is not given is left
out. Results go to benchmarks/trained_models.json, one model at a time; a model that is there with the same
weights is not run again. The table in docs/results.md is written anew from that file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch

import ptq4snn
from ptq4snn.checkpoint.naming import COUNTER
from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.models.trained import TRAINED
from ptq4snn.pipeline import prepare, run
from ptq4snn.progress import for_terminal
from ptq4snn.recipe import Recipe

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- table of trained models -->", "<!-- end of table -->"
SETTINGS = ("w4m4", "w4m2", "w3m4")
SIMULATED = {"cifar10-dvs-sim": "cifar10"}  # made from the images of
CALIBRATION = 1024
FIXED = {"camvid": {"beta": 0.8, "percentile": 98.0}}  # no search there: 24 passes over large images


def measure(name: str, data: str, limit: int | None) -> dict[str, Any]:
    """Float and quantized figures of a model, and the neurons that were quantized."""
    entry = TRAINED[name]
    test = open_samples(data, "test", entry.preprocessing, entry.data)
    train = open_samples(data, "calibration", entry.preprocessing, entry.data)
    batches = SampleBatches(test, 50, indices=range(min(len(test), limit or len(test))))
    model, progress = entry.load(), for_terminal()
    rows = [{"setting": "float", **score(ptq4snn.evaluate(model, batches, progress=progress))}]
    print(f"{name}: {rows[0]}", flush=True)
    prepared = prepare(model, calibration(train), Recipe(), progress=progress)
    for setting in SETTINGS:
        began = time.monotonic()
        q = run(prepared, Recipe.parse(f"paper+nearest+{setting}").replace(**FIXED.get(entry.data, {})))
        total: Any = q.report["summary"]
        found = score(ptq4snn.evaluate(q, batches, progress=progress))
        keys = ("average_bits", "saturation", "flip_rate", "agreement", "weight_bytes", "state_bytes")
        rows.append({"setting": setting, **found, **{k: total[k] for k in keys}})
        print(f"{name}: {rows[-1]} {time.monotonic() - began:.0f} s", flush=True)
    neurons = [n["kind"] for n in q.report["neurons"]]
    widest = max(int(bits) for n in q.report["neurons"] for bits in n["bits"])
    return {
        "weights": weights_hash(name),
        "data": entry.data,
        "samples": rows[0].pop("samples"),
        "neurons": {kind: neurons.count(kind) for kind in sorted(set(neurons))},
        "widest_state_bits": widest,
        "rows": rows,
    }


def calibration(train: Any) -> SampleBatches[Any]:
    """The first samples, or a fixed random choice where a data set is sorted by class."""
    order = torch.arange(len(train))
    if getattr(train, "sorted_by_class", False):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    return SampleBatches(train, 16, indices=order[:CALIBRATION].tolist())


def score(result: Any) -> dict[str, Any]:
    """The figure that counts: mIoU of label maps, else the accuracy."""
    miou = result.get("mIoU")
    metric = "accuracy" if miou is None else "mIoU"
    return {"metric": metric, "score": result[metric], "samples": result["samples"]}


def weights_hash(name: str) -> str:
    """Of the tensors; what else the file says does not matter."""
    mark = hashlib.sha256()
    for key, tensor in sorted(TRAINED[name].load().state_dict().items()):
        if not key.endswith(COUNTER):
            mark.update(key.encode() + tensor.contiguous().numpy().tobytes())
    return mark.hexdigest()[:16]


def known() -> dict[str, Any]:
    """What was measured so far; read anew each time, so that two runs can share the work."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return {n: results[n] for n in TRAINED if n in results}


def table(results: dict[str, Any]) -> str:
    head = ["model", "test", "float", *(s.upper().replace("M", "/M") for s in SETTINGS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results.items():
        base = r["rows"][0]["score"]
        what = "mIoU" if r["rows"][0]["metric"] == "mIoU" else "Acc@1"
        cells = [f"`{name}`", f"{what}, {r['samples']:,}", f"{base:.2f}"]
        for row in r["rows"][1:]:
            cells.append(
                f"{row['score']:.2f} ({row['score'] - base:+.2f})<br>{row['average_bits']:.2f} bit, "
                f"sat. {row['saturation']:.2f} %, flips {100 * row['flip_rate']:.2f} %"
            )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_page(results: dict[str, Any]) -> None:
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", "utf-8")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", metavar="NAME", help="only these")
    p.add_argument("--limit", type=int, help="test samples at most, to try it; nothing is written")
    a = p.parse_args()
    places = dict(d.split(":", 1) for d in a.data)
    for name, entry in TRAINED.items():
        place = places.get(SIMULATED.get(entry.data, entry.data))
        if entry.checkpoint is None or place is None or name not in (a.model or [name]):
            continue
        if a.limit is None and known().get(name, {}).get("weights") == weights_hash(name):
            continue
        found = measure(name, f"{entry.data}:{place}", a.limit)
        if a.limit is None:
            RESULTS.write_text(json.dumps(known() | {name: found}, indent=1) + "\n", "utf-8")
    if a.limit is None:
        write_page(known())


if __name__ == "__main__":
    main()

"""What a change of no meaning costs a trained network: a table of docs/results.md.

    python benchmarks/noise.py --data cifar10:DIR --data cifar100:DIR --data nmnist:FILE [--model NAME ...]

The weights of the folded float network are moved by normal noise of 0.01 %, 0.1 % and 1 % of each
projection's spread, three draws each, and the whole test set is run: how many decisions become others, and
what accuracy is left. A method of quantization that leaves as much has lost nothing that the network could
have kept. Of a network that segments every pixel with a label is a decision. Finished networks are kept in
benchmarks/noise.json; the table and a line of each network's card are written from it (--write does only
that).
"""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from ptq4snn.data.samples import VOID, SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.evaluation.noise import jittered
from ptq4snn.evaluation.segmentation_score import predict
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.draws import draw
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.prepare import prepare
from ptq4snn.prepared import Prepared
from ptq4snn.recipe import Recipe
from ptq4snn.runtime.measure import processor

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
ASSETS = Path(__file__).parents[1] / "src" / "ptq4snn" / "assets"
WEIGHTS = Path(__file__).parents[1] / "weights"
CARDS = {"default": ASSETS / "README.md", "vgg4-16-nmnist-slow": ASSETS / "vgg4-16-nmnist-slow.md"}
BY_PIXEL = {"sdt-fpn-16-camvid"}
LINE = "decisions changed by 0.01 % weight noise"
BEGIN, END = "<!-- noise -->", "<!-- end of noise -->"
SIZES = (1e-4, 1e-3, 1e-2)
DRAWS = 3
FEW, BATCH = 64, 16  # samples that the network is traced with, and that are run at once


def decisions(prepared: Prepared, batches: SampleBatches[Any], noise: tuple[int, float] | None) -> Tensor:
    """The class of every sample or pixel that the float network chooses, with noise of a seed and a size or
    without."""
    with jittered(prepared.folded, *noise) if noise else nullcontext():
        logits = prepared.logits(prepared.folded.model, (x for x, _ in batches))
        return torch.cat([chosen(z, x, y) for z, (x, y) in zip(logits, batches, strict=True)])


def chosen(z: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the logits of a batch; those of a picture take the size of its labels first."""
    if y.dim() == 1:
        return z.argmax(1)
    return torch.cat([predict(one, x.shape[-2:], y.shape[-2:]).flatten() for one in z])


def measure(name: str, data: str) -> dict[str, Any]:
    """Accuracy and changed decisions in % of the network at every size of noise, one figure a draw."""
    entry = TRAINED[name]
    calibration = open_samples(data, "calibration", entry.preprocessing, entry.data)
    test = SampleBatches(open_samples(data, "test", entry.preprocessing, entry.data), BATCH)
    prepared = prepare(entry.load(), draw(SampleBatches(calibration, BATCH), FEW, 0), Recipe.parse("w8m8"))
    labels = torch.cat([y for _, y in test])
    scored = labels.flatten() != VOID
    right = labels.flatten()[scored]
    plain = decisions(prepared, test, None)[scored]
    rows = []
    for size in SIZES:
        found = [decisions(prepared, test, (seed, size))[scored] for seed in range(DRAWS)]
        rows.append(
            {
                "size": size,
                "accuracy": [share(d == right) for d in found],
                "changed": [share(d != plain) for d in found],
            }
        )
        print(f"{name} {size:g}: {rows[-1]['accuracy']}, changed {rows[-1]['changed']}", flush=True)
    return {"float": share(plain == right), "samples": len(labels), "date": today(),
            "processor": processor(), "rows": rows}  # fmt: skip


def share(hits: Tensor) -> float:
    return 100.0 * float(hits.double().mean())


def table(results: dict[str, Any]) -> str:
    """A line a network: changed decisions and accuracy at every size."""
    head = ["network", "samples", "float", *(f"noise {100 * size:g} %" for size in SIZES)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results.items():
        cells = [f"`{name}`", f"{r['samples']:,}", f"{r['float']:.2f}"]
        for row in r["rows"]:
            lost = fmean(row["accuracy"]) - r["float"]
            cells.append(
                f"{fmean(row['changed']):.2f} % others; {fmean(row['accuracy']):.2f} ± "
                f"{stdev(row['accuracy']):.2f} ({lost:+.2f})"
            )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cards(results: dict[str, Any]) -> dict[Path, str]:
    """Every network's card, with a line that says how many decisions the least noise changes."""
    found = {}
    for name, r in results.items():
        path = CARDS.get(name) or (WEIGHTS / (TRAINED[name].checkpoint or name)).with_suffix(".md")
        if path.exists():
            what = f"{'the pixels of ' if name in BY_PIXEL else ''}{r['samples']:,} test samples"
            line = f"| {LINE} | {fmean(r['rows'][0]['changed']):.2f} % of {what} |"
            old = [s for s in path.read_text("utf-8").splitlines() if not s.startswith(f"| {LINE} |")]
            licence = next(i for i, s in enumerate(old) if s.startswith("| licence |"))
            found[path] = "\n".join([*old[:licence], line, *old[licence:]]) + "\n"
    return found


def known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    order = {n: i for i, n in enumerate(TRAINED)}
    return dict(sorted(found.items(), key=lambda x: order[x[0]]))


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", metavar="NAME", help="only these")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    places = {name: place for name, _, place in (d.partition(":") for d in a.data)}
    for name in [] if a.write else a.model or TRAINED:
        data = TRAINED[name].data
        if data in places:
            found = measure(name, f"{data}:{places[data]}")
            write_whole(RESULTS, json.dumps(known() | {name: found}, indent=1) + "\n")
    write_whole(PAGE, written(known()))
    for path, text in cards(known()).items():
        write_whole(path, text)


if __name__ == "__main__":
    main()

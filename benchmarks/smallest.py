"""The smallest model for a goal, and whether the goal holds on other samples: a table of docs/results.md.

    python benchmarks/smallest.py --data cifar10:DIR --seeds 0 1

asks `ptq4snn.quantize(..., max_drop=POINTS)` and `agreement=PERCENT` for the embedded network, on labelled
test images of which half calibrate and half judge; a seed draws which ones. What is taken is then run on
OTHERS test images that did neither. Goals that no model reaches are rows as well. Finished searches are kept
in benchmarks/smallest.json, the tables are written from it (--write does only that), and the picture is of
the search with the most models tried.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ptq4snn
from ptq4snn.data.samples import SampleBatches, Samples
from ptq4snn.data.source import open_samples
from ptq4snn.errors import GoalNotReached
from ptq4snn.experiments.bench import today
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.progress import for_terminal
from ptq4snn.recipe import Recipe
from ptq4snn.report.drawing import figure_spec, write_figure
from ptq4snn.report.figures.frontier import FIGURE
from ptq4snn.report.units import size

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
PICTURE = PAGE.parent / "images" / "frontier.svg"
BEGIN, END = "<!-- smallest -->", "<!-- end of smallest -->"
NETWORK = "default"
OTHERS = 4000  # images that neither calibrate nor judge
BATCH = 64
GOALS: tuple[tuple[str, float, int], ...] = (  # what is asked, how much of it, samples that are given
    ("agreement", 90.0, 2000),
    ("max_drop", 1.0, 1000),
    ("max_drop", 1.0, 6000),
    ("max_drop", 0.5, 6000),
)


def search(goal: tuple[str, float, int], seed: int, test: Samples, work: Path) -> dict[str, Any]:
    """One search, and what the model it takes does on the others."""
    asked, value, given = goal
    order = np.random.default_rng(seed).permutation(len(test))
    mine, others = order[: len(test) - OTHERS][:given], order[-OTHERS:]
    model = TRAINED[NETWORK].load()
    row: dict[str, Any] = {"asked": asked, "value": value, "given": given, "seed": seed, "date": today()}
    samples = SampleBatches(test, BATCH, indices=mine.tolist())
    try:
        changes: dict[str, Any] = {asked: value, "seed": seed, "calibration": min(given // 2, 512)}
        recipe = Recipe.parse("w4m4").replace(**changes)
        q = ptq4snn.quantize(model, samples, recipe, work=work, progress=for_terminal())
    except GoalNotReached as e:
        return row | {"refused": str(e)}
    chosen = next(r for r in q.report["figures"]["frontier"]["rows"] if r["chosen"])
    return row | elsewhere(model, q, SampleBatches(test, BATCH, indices=others.tolist())) | {
        "frontier": q.report["figures"]["frontier"], "taken": chosen["name"], "bytes": chosen["bytes"],
    }  # fmt: skip


def elsewhere(model: torch.nn.Module, q: Any, batches: SampleBatches[Any]) -> dict[str, float]:
    """Accuracy of both networks and their agreement, in per cent, on samples that chose nothing."""
    ours, floats, labels = [], [], []
    with torch.no_grad():
        for x, y in batches:
            ours.append(q(x).argmax(1))
            floats.append(model(x).argmax(1))
            labels.append(y)
    a, b, y = torch.cat(ours), torch.cat(floats), torch.cat(labels)
    return {
        name: 100.0 * float(hits.double().mean())
        for name, hits in (("accuracy", a == y), ("float", b == y), ("agreement", a == b))
    }


def asked(row: dict[str, Any]) -> str:
    option = row["asked"].replace("_", "-")
    return f"`--{option} {row['value']:g}`, {row['given']:,} samples, seed {row['seed']}"


def table(rows: list[dict[str, Any]]) -> str:
    """A line a search."""
    head = ["asked", "tried", "taken", "bytes", "judged, 95 % interval", "on 4,000 others"]
    lines = ["| " + " | ".join(head) + " |", "|---|---:|---|---:|---|---|"]
    for row in rows:
        if "refused" in row:
            lines.append(f"| {asked(row)} |  | none, exit code 2 |  | {row['refused']} |  |")
            continue
        data = row["frontier"]
        best = next(r for r in data["rows"] if r["chosen"])
        judged = f"{data['measure']} {best['quality']:.2f} ({best['low']:.2f} to {best['high']:.2f})"
        judged += f", float {data['float']:.2f}" if data["float"] is not None else ""
        lost = row["accuracy"] - row["float"]
        other = f"agreement {row['agreement']:.2f}; accuracy {row['accuracy']:.2f} ({lost:+.2f})"
        cells = [asked(row), str(len(data["rows"])), row["taken"], size(row["bytes"]), judged, other]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def known() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    order = [g[0] + str(g[1:]) for g in GOALS]
    return sorted(found, key=lambda r: (order.index(f"{r['asked']}{(r['value'], r['given'])}"), r["seed"]))


def written(rows: list[dict[str, Any]]) -> str:
    """The page with the table that the searches give."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}"


def write(rows: list[dict[str, Any]]) -> None:
    """The page, and the picture of the longest search."""
    write_whole(PAGE, written(rows))
    found = [r for r in rows if "frontier" in r]
    if found:
        longest = max(found, key=lambda r: len(r["frontier"]["rows"]))
        spec = figure_spec(FIGURE, FIGURE.panels(longest["frontier"]))
        write_figure(spec, PICTURE)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="", metavar="cifar10:DIR")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    p.add_argument("--work", default="runs/smallest", type=Path, help="where finished candidates are kept")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    for seed in [] if a.write else a.seeds:
        test = open_samples(a.data, "test", TRAINED[NETWORK].preprocessing, TRAINED[NETWORK].data)
        for goal in GOALS:
            row = search(goal, seed, test, a.work / f"{goal[0]}-{goal[2]}-{seed}")
            same = (row["asked"], row["value"], row["given"], seed)
            others = [r for r in known() if (r["asked"], r["value"], r["given"], r["seed"]) != same]
            write_whole(RESULTS, json.dumps([*others, row], indent=1) + "\n")
            print(asked(row), row.get("taken", "none"), flush=True)
    write(known())


if __name__ == "__main__":
    main()

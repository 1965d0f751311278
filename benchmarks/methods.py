"""Methods against each other on every trained model: the tables of docs/results.md.

    python benchmarks/methods.py --data cifar10:DIR --data nmnist:FILE --data camvid:FILE

One `--data` for each data set; CIFAR10-DVS-sim is made from CIFAR-10. A model whose data is not given is left
out. For every model this is

    ptq4snn compare MODEL --data DATA --seeds 0 1 2 --methods METHODS ...

Finished runs are kept in --out (runs/methods) and reused; two processes may share it. The figures go to
benchmarks/methods.json, the tables in docs/results.md and README.md are written anew from it (--write does
only that).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.compare import compare
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.progress import for_terminal

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
SIMULATED = {"cifar10-dvs-sim": "cifar10"}  # made from the images of
METHODS = {  # what the goals are about
    "GPTQ W4/M32": "gptq+w4m32",
    "FlowQ W4/M4": "paper+nearest+flowq+uniform+w4m4",
    "layer-wise W4/M4": "paper+nearest+layerwise+uniform+w4m4",
    "best-fast W4/M4": "best-fast+w4m4",
    "best-fast W4/M2": "best-fast+w4m2",
}
ABLATION = {  # the paper's states, then one option after the other; weights by GPTQ
    "squared error (paper's bridge)": "paper+separate+gptq+uniform+w4m{}",
    "with MPBA (paper)": "paper+separate+gptq+w4m{}",
    "replay": "paper+separate+gptq+uniform+replay+w4m{}",
    "replay, dither": "paper+separate+gptq+uniform+replay+dither+w4m{}",
    "replay, benefit, 3-bit": "paper+separate+gptq+benefit+3-bit+replay+w4m{}",
    "replay, sequential": "paper+separate+gptq+uniform+replay+sequential+w4m{}",
    "... zero point": "paper+separate+gptq+uniform+replay+sequential+zero-point+w4m{}",
    "... zero point, dither": "paper+separate+gptq+uniform+replay+sequential+zero-point+dither+w4m{}",
    "... zero point, bias": "paper+separate+gptq+uniform+replay+sequential+zero-point+bias+w4m{}",
    "... zero point, threshold": "paper+separate+gptq+uniform+replay+sequential+zero-point+threshold+w4m{}",
    "... zero point, benefit, 3-bit": "paper+separate+gptq+benefit+3-bit+replay+sequential+zero-point+w4m{}",
}
EQUAL = {  # couplings and allocations on equal weights, rounded alike; only FlowQ has one scale a layer
    "reuse": "paper+{}+reuse+uniform+w4m{}",
    "FlowQ": "paper+{}+flowq+uniform+w4m{}",
    "layer-wise": "paper+{}+layerwise+uniform+w4m{}",
    "bridge": "paper+{}+uniform+w4m{}",
    "bridge + MPBA": "paper+{}+w4m{}",
    "default": "{}+w4m{}",
}
BUDGETS = ("4", "3", "2.5", "2")
BRIEF = ("4", "2")  # of README
NOT_AT = {  # the same width for all has no average between widths; MPBA at 2 bits is that: the bridge
    "2.5": ("reuse", "FlowQ", "layer-wise", "bridge"),
    "2": ("bridge + MPBA",),
}
# weights, and what the rows on them begin with
ON = {"gptq": "", "sbc": "sbc: ", "nearest": "nearest: ", "brecq": "BRECQ: "}
NARROW = {
    "W4/M32": "w4m32", "W4/M2": "w4m2", "W3/M2": "w3m2", "W3/M2, one width": "one-width+w3m2",
    "W2.5/M2": "w2.5m2", "W2/M2": "w2m2",
}  # fmt: skip
DISTILLED = {"W2/M2": "w2m2+distil", "W3/M2": "w3m2+distil", "W4/M2": "w4m2+distil"}
ABLATED = ("sew-resnet10-48-cifar10", "sdt-2-128-cifar10", "vgg4-16-nmnist-slow")


def ablation() -> dict[str, str]:
    rows = {"GPTQ W4/M32": "gptq+w4m32"}
    for bits in (4, 2):
        rows |= {f"{label}, M{bits}": spec.format(bits) for label, spec in ABLATION.items()}
    return rows


def equal(roundings: tuple[str, ...] = ("gptq",)) -> dict[str, str]:
    """Every coupling at every budget on the weights of each rounding."""
    rows = {}
    for rounding in roundings:
        rows[f"{ON[rounding]}W4/M32"] = f"{rounding}+w4m32"
        for bits in BUDGETS:
            kept = {n: spec for n, spec in EQUAL.items() if n not in NOT_AT.get(bits, ())}
            rows |= {f"{ON[rounding]}{n} W4/M{bits}": s.format(rounding, bits) for n, s in kept.items()}
    return rows


PARTS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": lambda: METHODS, "ablation": ablation, "equal": equal, "narrow": lambda: NARROW,
    "distilled": lambda: DISTILLED,
}  # fmt: skip


def measure(
    name: str, data: str, methods: dict[str, str], seeds: list[int], out: Path, limit: int | None
) -> Any:
    """The rows of a model."""
    entry = TRAINED[name]
    test = open_samples(data, "test", entry.preprocessing, entry.data)
    train = open_samples(data, "calibration", entry.preprocessing, entry.data)
    found = compare(
        entry.load(),
        SampleBatches(train, 16),
        SampleBatches(test, 50),
        [f"{label}={spec}" for label, spec in methods.items()],
        seeds,
        folder=out,
        limit=limit,
        progress=for_terminal(),
        report=lambda m, seed, r, stored: print(f"{name}: {m.label} {seed}: {r['score']:.2f}", flush=True),
    )
    rows = found.to_dict()["rows"]
    each = {m.label: [r["score"] for r in found.of(m)] for m in found.methods}
    return {
        "data": entry.data,
        "samples": found.runs[0]["samples"],
        "date": today(),
        "seeds": seeds,
        "rows": [r | {"each": each[r["method"]]} for r in rows],
    }


def table(results: dict[str, Any], labels: list[str]) -> str:
    """A line a model, a column a method: mean score, spread over seeds, change from M32 with its interval."""
    head = ["model", "float", *labels]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results.items():
        rows = {row["method"]: row for row in r["rows"]}
        cells = [f"`{name}`<br>{r['samples']:,} samples", f"{rows['float']['score']:.2f}"]
        cells += [cell(rows[label]) if label in rows else "" for label in labels]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(row: dict[str, Any]) -> str:
    text = f"**{row['score']:.2f}**"
    if row["spread"] is not None:
        text += f" ± {row['spread']:.2f}"
    text += f"<br>float {row['change_from_float']:+.2f}"
    if row["change_from_baseline"] is not None:
        text += f"<br>M32 {row['change_from_baseline']:+.2f}"
        if row["interval_95"] is not None:
            text += " [{:+.2f}, {:+.2f}]".format(*row["interval_95"])
    return text


def written(page: Path, results: dict[str, Any]) -> str:
    """The page with the tables that the results give."""
    text = page.read_text("utf-8")
    long = {"methods": table, "ablation": transposed, "equal": side_by_side, "narrow": table}
    for part, shown in ({"equal": scores} if page == README else long).items():
        found = results.get(part, {})
        begin, end = BEGIN.format(part), END.format(part)
        if not found or begin not in text:
            continue
        every = (row["method"] for r in found.values() for row in r["rows"] if row["method"] != "float")
        labels = list(dict.fromkeys(every))
        text = text.split(begin)[0] + f"{begin}\n{shown(found, labels)}\n{end}" + text.split(end)[1]
    begin, end = BEGIN.format("distilled"), END.format("distilled")
    if begin in text and "distilled" in results:
        text = text.split(begin)[0] + f"{begin}\n{distilled(results)}\n{end}" + text.split(end)[1]
    return text


def distilled(results: dict[str, Any]) -> str:
    """A line a network and widths: the default and the same with distillation, on the seeds of the latter."""
    head = ["network", "seeds", "widths", "float", "default", "distilled", "float to distilled"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results["distilled"].items():
        rows = {row["method"]: row for row in r["rows"]}
        plain = results["narrow"][name]
        before = {row["method"]: row["each"] for row in plain["rows"]}
        for label in DISTILLED:
            same = [before[label][plain["seeds"].index(seed)] for seed in r["seeds"]]
            cells = [
                f"`{name}`", " ".join(map(str, r["seeds"])), label, f"{rows['float']['score']:.2f}",
                f"{sum(same) / len(same):.2f}", spread(rows[label]),
                f"{rows[label]['change_from_float']:+.2f}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_pages(results: dict[str, Any]) -> None:
    for page in (PAGE, README):
        write_whole(page, written(page, results))


def scores(results: dict[str, Any], labels: list[str]) -> str:
    """A line a network and a width of the states, a column a coupling, mean scores and their spread; of
    networks that were measured with several seeds."""
    head = ["network", "states", "float", "W4/M32", *EQUAL]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results.items():
        rows = {row["method"]: row for row in r["rows"]} if len(r["seeds"]) > 1 else {}
        for bits in BRIEF:
            wanted = ["float", "W4/M32", *(f"{method} W4/M{bits}" for method in EQUAL)]
            if not any(label in rows for label in wanted[2:]):
                continue  # not measured
            cells = [spread(rows.get(label)) for label in wanted]
            lines.append("| " + " | ".join([f"`{name}`", f"{bits} bits", *cells]) + " |")
    return "\n".join(lines)


def spread(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['score']:.2f}" + ("" if row["spread"] is None else f" ± {row['spread']:.2f}")


def transposed(results: dict[str, Any], labels: list[str]) -> str:
    """A line a method, a column a model: score, and KL to the float model on held-out samples."""
    head = ["states", *(f"`{name}`, {r['samples']:,} samples" for name, r in results.items())]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label in labels:
        cells = [label]
        for r in results.values():
            row = next(row for row in r["rows"] if row["method"] == label)
            cells.append(f"{row['score']:.2f} (KL {row['kl']:.4f})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def side_by_side(results: dict[str, Any], labels: list[str]) -> str:
    """A line a method, a column a model: mean score, spread over seeds, change from M32 with its interval."""
    head = ["method", *(f"`{name}`, {r['samples']:,} samples" for name, r in results.items())]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label in ("float", *labels):
        rows = [next((w for w in r["rows"] if w["method"] == label), None) for r in results.values()]
        cells = ["" if w is None else cell(w).replace("<br>", "; ") for w in rows]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines)


def joined(before: Any, now: Any) -> Any:
    """The rows of a new measurement, in the places of an earlier one on the same seeds and samples."""
    if before is None or any(before[k] != now[k] for k in ("seeds", "samples")):
        return now
    rows = {r["method"]: r for r in before["rows"]} | {r["method"]: r for r in now["rows"]}
    return now | {"rows": list(rows.values())}


def known() -> dict[str, Any]:
    """What was measured so far; read anew each time, so that two runs can share the work."""
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    order = {n: i for i, n in enumerate(TRAINED)}
    return {part: dict(sorted(rows.items(), key=lambda x: order[x[0]])) for part, rows in found.items()}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", metavar="NAME", help="only these")
    p.add_argument("--part", choices=tuple(PARTS), default="methods")
    p.add_argument("--rounding", choices=tuple(ON), action="append", help="of the equal weights (gptq)")
    p.add_argument("--only", nargs="+", metavar="ROW", help="only these rows; the others stay")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--out", default="runs/methods", type=Path, help="where finished runs are kept")
    p.add_argument("--limit", type=int, help="test samples at most (all; 2,000 for the ablation)")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    places = {name: place for name, _, place in (d.partition(":") for d in a.data)}
    methods = equal(tuple(a.rounding or ["gptq"])) if a.part == "equal" else PARTS[a.part]()
    methods = {row: spec for row, spec in methods.items() if not a.only or row in a.only}
    limit = a.limit if a.limit is not None or a.part != "ablation" else 2000
    wanted = a.model or (list(ABLATED) if a.part == "ablation" else list(TRAINED))
    for name in [] if a.write else wanted:
        entry = TRAINED[name]
        place = places.get(SIMULATED.get(entry.data, entry.data))
        if place is None:
            continue
        found = measure(name, f"{entry.data}:{place}", methods, a.seeds, a.out, limit)
        results = known()
        results[a.part] = results.get(a.part, {}) | {name: joined(results.get(a.part, {}).get(name), found)}
        write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    write_pages(known())


if __name__ == "__main__":
    main()

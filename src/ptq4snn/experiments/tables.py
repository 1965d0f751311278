"""A comparison as aligned text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ptq4snn.evaluation.summary import table
from ptq4snn.experiments.comparison import Comparison, Row, summary

__all__ = ["number", "raw_csv", "text_table"]

SCORED = {"accuracy": "accuracy %", "mIoU": "mIoU %"}


def number(value: float | None, pattern: str = "{:.2f}", factor: float = 1.0) -> str:
    """Blank for what does not exist."""
    return "" if value is None else pattern.format(value * factor)


def text_table(comparison: Comparison, paper: Sequence[str] | None = None) -> list[str]:
    """One line a method; `paper` are the cells of a column with the paper's own figures."""
    rows = comparison.rows()
    titles = ["method", SCORED[rows[0].metric], "spread", "change"]
    cells = [[r.label, number(r.score), number(r.spread), number(r.change, "{:+.2f}")] for r in rows]
    columns: list[tuple[str, Sequence[str]]] = [
        (name, [number(r.scores[name]) for r in rows]) for name in ("aAcc", "mAcc") if name in rows[0].scores
    ]
    if any(r.baseline for r in rows):
        columns.append(("vs base", [number(r.baseline_change, "{:+.2f}") for r in rows]))
    if any(r.interval for r in rows):
        columns.append(("95 % interval", [bounds(r) for r in rows]))
    columns.append(("bits", [number(r.figures["average_bits"]) for r in rows]))
    columns.append(("sat. %", [number(r.figures["saturation"]) for r in rows]))
    if paper is None:  # else there is no room
        columns.append(("flips %", [number(r.figures["flip_rate"], factor=100) for r in rows]))
    else:
        columns.append(("paper", paper))
    titles += [title for title, _ in columns]
    body = [[*line, *(c[i] for _, c in columns)] for i, line in enumerate(cells)]
    return [*table(titles, body, left=1), *notes(comparison, rows)]


def bounds(row: Row) -> str:
    return "" if row.interval is None else f"{row.interval.low:+.2f} .. {row.interval.high:+.2f}"


def notes(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """What the columns mean: test samples, seeds, baselines."""
    seeds = ", ".join(map(str, comparison.seeds))
    run = comparison.runs[0]
    kind = "images" if run["task"] == "segmentation" else "samples"
    lines = [
        "",
        f"{run['samples']:,} test {kind}; calibration seeds {seeds}; change: points from the float model",
    ]
    baselines: dict[str, list[str]] = {}
    for r in rows:
        if r.baseline is not None:
            baselines.setdefault(r.baseline, []).append(r.label)
    lines += [f"baseline {b!r} of: {', '.join(labels)}" for b, labels in baselines.items()]
    return lines


def record(run: dict[str, Any]) -> dict[str, Any]:
    """A run as one flat line of figures."""
    s = summary(run)
    flat = {
        "method": run["label"], "spec": run["spec"], "seed": run["seed"], "metric": run["metric"],
        "score": run["score"], "samples": run["samples"],
    }  # fmt: skip
    flat |= {n: run["scores"].get(n) for n in ("accuracy", "accuracy_top5", "mIoU", "aAcc", "mAcc")}
    names = (
        "average_bits", "average_bits_all", "saturation", "flip_rate", "agreement", "kl", "emd", "beta",
        "percentile", "state_energy",
    )  # fmt: skip
    flat |= {n: s.get(n) for n in names}
    parts = (("silent_channels", "after"), ("weight_bytes", "quantized"), ("state_bytes", "packed"))
    flat |= {f"{name}_{part}": s.get(name, {}).get(part) for name, part in parts}
    flat |= {f"seconds_{n}": seconds for n, seconds in run["seconds"].items()}
    return flat | {"date": run["date"], "version": run["version"]}


def raw_csv(comparison: Comparison) -> str:
    """One line a run."""
    lines = [record(r) for r in comparison.runs]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()

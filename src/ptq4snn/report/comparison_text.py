"""A comparison as aligned text, from its JSON alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ptq4snn.report.text import Grid, number
from ptq4snn.schema.comparison_types import ComparisonData

__all__ = ["comparison_grid", "comparison_table", "noise_line"]

Column = Literal[
    "score", "spread", "change_from_float", "change_from_baseline", "average_bits", "saturation", "flip_rate"
]
SCORED = {"accuracy": "accuracy %", "mIoU": "mIoU %"}


def comparison_table(data: ComparisonData, paper: Sequence[str] | None = None) -> list[str]:
    """The table as text, with what its columns mean."""
    return [*comparison_grid(data, paper).lines(), *_notes(data)]


def comparison_grid(data: ComparisonData, paper: Sequence[str] | None = None) -> Grid:
    """One line a method; `paper` are the cells of a column with the paper's own figures."""
    rows = data["rows"]

    def column(key: Column, pattern: str = "{:.2f}", factor: float = 1.0) -> list[str]:
        return [number(r[key], pattern, factor, missing="") for r in rows]

    columns: list[tuple[str, Sequence[str]]] = [
        ("method", [r["method"] for r in rows]),
        (SCORED[rows[0]["metric"]], column("score")),
        ("spread", column("spread")),
        ("change", column("change_from_float", "{:+.2f}")),
    ]
    for name in ("aAcc", "mAcc"):
        if name in rows[0]["scores"]:
            columns.append((name, [number(r["scores"][name], "{:.2f}", missing="") for r in rows]))
    if any(r["baseline"] for r in rows):
        columns.append(("vs base", column("change_from_baseline", "{:+.2f}")))
    if any(r["interval_95"] for r in rows):
        columns.append(("95 % interval", [_bounds(r["interval_95"]) for r in rows]))
    columns += [("bits", column("average_bits")), ("sat. %", column("saturation"))]
    # with the paper's figures there is no room for the flips
    columns.append(("flips %", column("flip_rate", factor=100)) if paper is None else ("paper", paper))
    return Grid.of([title for title, _ in columns], zip(*(cells for _, cells in columns), strict=True))


def _bounds(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:+.2f} .. {interval[1]:+.2f}"


def noise_line(data: ComparisonData) -> list[str]:
    """The floor below which no method can be told from the float model, where it is known."""
    reports = [report for r in data["runs"] if (report := r.get("report")) is not None]
    floors = [floor for r in reports if (floor := r["summary"].get("noise_floor")) is not None]
    if not floors:
        return []
    agreement = sum(floor["agreement"] for floor in floors) / len(floors)
    known = [floor["kl"] for floor in floors if floor["kl"] is not None]
    kl = f", KL {sum(known) / len(known):.4f}" if known else ""
    return [
        f"noise floor: with 0.01 % of weight noise float keeps {100 * agreement:.2f} % of its held-out "
        f"decisions{kl}"
    ]


def _notes(data: ComparisonData) -> list[str]:
    """What the columns mean: test samples, seeds, baselines."""
    seeds = ", ".join(map(str, data["seeds"]))
    run = data["runs"][0]
    kind = "images" if run["task"] == "segmentation" else "samples"
    lines = [
        "",
        f"{run['samples']:,} test {kind}; calibration seeds {seeds}; change: points from the float model",
    ]
    lines += noise_line(data)
    baselines: dict[str, list[str]] = {}
    for r in data["rows"]:
        if r["baseline"] is not None:
            baselines.setdefault(r["baseline"], []).append(r["method"])
    return lines + [f"baseline {b!r} of: {', '.join(labels)}" for b, labels in baselines.items()]

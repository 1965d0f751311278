"""The methods of a comparison by their score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ptq4snn.report.figure import Figure
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import change
from ptq4snn.schema.comparison_types import ComparisonData, MethodRow
from ptq4snn.schema.report_types import Report

__all__ = ["FIGURE", "panels"]

KINDS = {True: "float", False: "quantized"}
LOSS = 25.0  # points; what loses more is out of use, and would squeeze the others together


def panels(data: ComparisonData) -> list[Panel]:
    """One dot a method; its spread over the seeds as a line."""
    rows = [one(r, i == 0) for i, r in enumerate(data["rows"])]
    if not rows:
        return []
    quantized = [r for r in rows if r["kind"] != "float"]
    words = f"The float network scores {rows[0]['score']:.2f} %."
    if quantized:
        best = max(quantized, key=lambda r: float(r["score"]))
        worst = min(quantized, key=lambda r: float(r["score"]))
        words += (
            f" Best of {len(quantized)} methods: {best['method']}, {best['score']:.2f} % "
            f"({change(best['change'])} points); last: {worst['method']}, {worst['score']:.2f} % "
            f"({change(worst['change'])})."
        )
    metric = data["rows"][0]["metric"]
    columns = {"method": "method", "score": f"{metric}, %", "change": "change from float, points"}
    return [
        Panel(
            "Methods by score",
            words,
            dots(rows, metric),
            rows,
            columns,
            height=26 * len(rows) + 10,
            width=360,
        )
    ]


def one(r: MethodRow, first: bool) -> Row:
    half = r["spread"] or 0.0
    return {
        "method": r["method"], "score": r["score"], "change": r["change_from_float"], "kind": KINDS[first],
        "low": r["score"] - half, "high": r["score"] + half, "text": f"{r['score']:.2f}",
    }  # fmt: skip


def dots(rows: list[Row], metric: str) -> Spec:
    order = [r["method"] for r in rows]
    least = max(min(r["low"] for r in rows), max(r["high"] for r in rows) - LOSS)
    scale = {"domain": [least, max(r["high"] for r in rows)], "padding": 44, "nice": False, "clamp": True}
    tokens = {"float": "before", "quantized": "after"}
    return {
        "encoding": {
            "y": channel(
                "method", None, "nominal", sort=order, axis={"labelLimit": 190, "ticks": False, "grid": True}
            ),
            "x": channel("score", f"{metric}, %", scale=scale, axis={"tickCount": 5}),
        },
        "layer": [
            {
                "mark": {"type": "rule", "color": "@muted", "aria": False},
                "encoding": {"x": channel("low", f"{metric}, %"), "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "color": colours("kind", tokens, sort=[*tokens]),
                    "tooltip": [
                        channel("method", "method", "nominal"),
                        channel("score", f"{metric}, %", format=".2f"),
                    ],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 9, "aria": False},
                "encoding": {"text": {"field": "text"}},
            },
        ],
    }


def look(report: Report) -> None:
    """A report is of one method."""


def of_runs(found: Mapping[str, Any]) -> ComparisonData | None:
    return cast(ComparisonData, found) if found["rows"] else None


def absent(report: Report) -> str:
    return "one run has one method; name the JSON file of `ptq4snn compare`"


FIGURE = Figure(
    "methods",
    "methods of a comparison by their score",
    panels,
    look=look,
    of_runs=of_runs,
    absent=absent,
    columns=1,
)

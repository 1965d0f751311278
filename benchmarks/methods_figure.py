"""Draws what the couplings cost on equal weights: docs/images/couplings.svg, from benchmarks/methods.json.

python benchmarks/methods_figure.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from methods import BUDGETS, known

from ptq4snn.report.drawing import figure_spec, write_figure
from ptq4snn.report.figure import Figure
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours

OUT = Path(__file__).parents[1] / "docs" / "images" / "couplings.svg"
DRAWN = {  # reuse would press all others together
    "FlowQ": "series2", "layer-wise": "series4", "bridge": "series3", "bridge + MPBA": "before",
    "default": "series1",
}  # fmt: skip
SHAPES = ["triangle-up", "diamond", "square", "cross", "circle"]
AXIS = "change from 32-bit states, points"

NOTHING_LOST: Spec = {
    "data": {"values": [{"zero": 0}]},
    "mark": {"type": "rule", "strokeDash": [3, 3]},
    "encoding": {
        "y": channel("zero", AXIS), "x": {"value": 0}, "x2": {"value": "width"}, "color": {"value": "@muted"},
    },
}  # fmt: skip


def rows_of(result: Any) -> list[Row]:
    """What is known of a network: a row a method and width, with the ends of its interval."""
    found = {row["method"]: row for row in result["rows"]}
    rows = []
    for i, name in enumerate(DRAWN):
        for bits in BUDGETS:
            row = found.get(f"{name} W4/M{bits}")
            if row is None or row["interval_95"] is None:
                continue
            low, high = row["interval_95"]
            beside = float(bits) + 0.05 * (i - 2)  # next to each other
            rows.append({"method": name, "bits": beside, "change": row["change_from_baseline"],
                         "low": low, "high": high})  # fmt: skip
    return rows


def drawn(rows: list[Row]) -> Spec:
    x = channel(
        "bits", "bits of a state, on average",
        axis={"grid": False, "values": [2, 2.5, 3, 4]}, scale={"domain": [1.75, 4.25]},
    )  # fmt: skip
    shapes = {"domain": list(DRAWN), "range": SHAPES}
    colour = colours("method", DRAWN, sort=list(DRAWN))
    return {
        "encoding": {"x": x, "color": colour},
        "layer": [
            NOTHING_LOST,
            {"mark": {"type": "rule", "opacity": 0.55},
             "encoding": {"y": channel("low", AXIS), "y2": {"field": "high"}}},
            {"mark": {"type": "line", "strokeWidth": 1.2}, "encoding": {"y": channel("change", AXIS)}},
            {"mark": {"type": "point", "filled": True, "size": 42, "opacity": 1},
             "encoding": {"y": channel("change", AXIS),
                          "shape": {"field": "method", "type": "nominal", "scale": shapes, "title": None}}},
        ],
    }  # fmt: skip


def panel(name: str, result: Any) -> Panel:
    rows = rows_of(result)
    worst = min(rows, key=lambda r: float(r["change"]))
    text = f"{name}: the largest loss is {worst['change']:+.2f}, by {worst['method']}."
    return Panel(name, text, drawn(rows), rows, {"method": "method", "change": AXIS}, height=190, width=250)


def main() -> None:
    figure = Figure("couplings", "couplings on equal weights", lambda _: [], columns=3, one_legend=True)
    panels = [panel(name, r) for name, r in known()["equal"].items()]
    write_figure(figure_spec(figure, panels), OUT)


if __name__ == "__main__":
    main()

"""The search for the smallest model that keeps a goal: bytes against what all that it tried keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.figures.common import rounded
from ptq4snn.report.panel import Panel, Row, Spec, axis_of_bytes, channel, colours, round_bytes
from ptq4snn.report.units import size
from ptq4snn.schema.figure_types import FrontierData, FrontierRow
from ptq4snn.schema.report_types import Report

__all__ = ["FIGURE", "Asked", "Tried", "cells", "data", "heading", "panels", "sentence"]

VERDICTS = {"kept": "after", "not kept": "before"}
TITLES = ["tried", "size", "%", "95 % interval", "verdict"]


@dataclass(frozen=True)
class Asked:
    """What was asked for, and of which samples."""

    measure: Literal["agreement", "accuracy"]
    asked: float
    limit: float
    floating: float | None  # accuracy of the float network
    samples: int


@dataclass(frozen=True)
class Tried:
    """One candidate: quality is its value and both ends of the interval."""

    name: str
    recipe: Mapping[str, Any]
    narrower: int
    bytes: int
    quality: tuple[float, float, float]
    kept: bool
    chosen: bool


def data(asked: Asked, tried: Sequence[Tried]) -> FrontierData:
    """In the order of trying."""
    rows: list[FrontierRow] = [
        {
            "name": t.name, "weights": t.recipe["weights"], "membrane": t.recipe["membrane"],
            "first_membrane": t.recipe["first_membrane"], "narrower": t.narrower, "bytes": t.bytes,
            "quality": t.quality[0], "low": t.quality[1], "high": t.quality[2], "kept": t.kept,
            "chosen": t.chosen,
        }
        for t in tried
    ]  # fmt: skip
    made: FrontierData = rounded(
        {
            "measure": asked.measure, "asked": asked.asked, "limit": asked.limit, "float": asked.floating,
            "samples": asked.samples, "rows": rows,
        }
    )  # fmt: skip
    return made


def heading(data: FrontierData) -> str:
    """The same in a few words."""
    limit = f"{data['measure']} of {data['limit']:.4g} %"
    return f"smallest with {limit} on {data['samples']:,} samples, {len(data['rows'])} tried"


def sentence(data: FrontierData) -> str:
    """What was looked for and what was found."""
    goal = f"an agreement of {data['asked']:g} % with the float network"
    if data["measure"] == "accuracy":
        goal = f"{data['limit']:.2f} % accuracy, {data['asked']:g} points below the float network's"
    chosen = next((r for r in data["rows"] if r["chosen"]), None)
    found = "" if chosen is None else f": {chosen['name']} of {size(chosen['bytes'])}"
    return f"Smallest of {len(data['rows'])} tried that keeps {goal}, on {data['samples']:,} samples{found}"


def panels(data: FrontierData) -> list[Panel]:
    """A dot for each candidate, its interval, the limit, a ring around the chosen one."""
    rows: list[Row] = [
        {
            "name": r["name"], "bytes": r["bytes"], "size": size(r["bytes"]), "quality": r["quality"],
            "low": r["low"], "high": r["high"], "verdict": "kept" if r["kept"] else "not kept",
            "chosen": r["chosen"], "limit": data["limit"],
        }
        for r in sorted(data["rows"], key=lambda r: r["bytes"])
    ]  # fmt: skip
    if not rows:
        return []
    axis = f"{data['measure']}, %"
    chosen = next((r for r in rows if r["chosen"]), None)
    words = f"{sentence(data)}."
    if chosen is not None:
        words += (
            f" It has {chosen['quality']:.2f} %, 95 % interval {chosen['low']:.2f} to {chosen['high']:.2f}; "
            f"the limit is {data['limit']:.2f} %, dashed. The samples that chose are none of those that the "
            "other figures here are from."
        )
    columns = {
        "name": "tried", "size": "weights and states", "quality": axis, "low": "from", "high": "to",
        "verdict": "verdict",
    }  # fmt: skip
    return [Panel("Size against " + data["measure"], words, dots(rows, axis), rows, columns, 280, 420, True)]


def dots(rows: list[Row], axis: str) -> Spec:
    sizes = [r["bytes"] for r in rows]
    ticks = axis_of_bytes(grid=False, values=round_bytes(sizes, 6))
    x = channel("bytes", "weights and the states of one sample", axis=ticks)
    right = any(r["chosen"] and 2 * r["bytes"] > min(sizes) + max(sizes) for r in rows)
    side = "right" if right else "left"  # of the words that stand below the chosen one
    x["scale"] = {"zero": False, "padding": 40}
    y = channel("quality", axis, scale={"zero": False}, axis={"tickCount": 6})
    tip = [
        channel("name", "tried", "nominal"), channel("size", "size", "nominal"),
        channel("quality", axis, format=".2f"), channel("low", "from", format=".2f"),
        channel("high", "to", format=".2f"),
    ]  # fmt: skip
    return {
        "encoding": {"x": x},
        "layer": [
            {
                "mark": {"type": "rule", "strokeDash": [5, 4], "color": "@warning", "aria": False},
                "encoding": {"x": {"value": 0}, "x2": {"value": "width"}, "y": channel("limit", axis)},
            },
            {
                "mark": {"type": "rule", "color": "@muted", "opacity": 0.5, "aria": False},
                "encoding": {"y": channel("low", axis, scale={"zero": False}), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"y": y, "color": colours("verdict", VERDICTS, sort=[*VERDICTS]), "tooltip": tip},
            },
            {
                "transform": [{"filter": "datum.chosen"}],
                "mark": {"type": "point", "size": 220, "stroke": "@ink", "strokeWidth": 1.5, "aria": False},
                "encoding": {"y": y},
            },
            {
                "transform": [{"filter": "datum.chosen"}],
                "mark": {
                    "type": "text",
                    "align": side,
                    "dy": -6,
                    "aria": False,
                },
                "encoding": {"y": {"value": "height"}, "text": {"field": "name"}},
            },
        ],
    }


def cells(r: FrontierRow) -> list[str]:
    """A line of the table."""
    verdict = "chosen" if r["chosen"] else "kept" if r["kept"] else "not kept"
    interval = f"{r['low']:.2f} to {r['high']:.2f}"
    return [r["name"], size(r["bytes"]), f"{r['quality']:.2f}", interval, verdict]


def absent(report: Report) -> str:
    return "its widths were given, not looked for; quantize with --agreement or --max-drop"


FIGURE = Figure(
    "frontier",
    "size against accuracy or agreement of all that a search for a goal tried",
    panels,
    heading=Heading(
        "frontier",
        "Frontier",
        "The smallest model that keeps the goal",
        "Every model that was tried, by its bytes and by what it keeps on samples that did not calibrate it.",
    ),
    absent=absent,
    columns=1,
)

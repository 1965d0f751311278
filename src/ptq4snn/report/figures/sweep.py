"""How much the two settings of the allocation matter: the weight of firing rates, and the percentile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.figures.common import allocated_by
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import significant
from ptq4snn.schema.figure_types import SweepData, SweepRow
from ptq4snn.schema.report_types import Report

if TYPE_CHECKING:
    from ptq4snn.allocation.search import Trial

__all__ = ["FIGURE", "Swept", "data", "panels"]

MEASURES = {  # key: (title, unit, factor, whether more is better)
    "score": ("Score of the test data", "%", 1, True),
    "kl": ("KL to the float network", "", 1, False),
    "agreement": ("Agreement with the float network", "%", 100, True),
}
SHAPES = ("circle", "square", "triangle-up", "diamond")
SERIES = len(SHAPES)


Rows = Sequence[Mapping[str, Any]]  # of SweepRow, and `score`


class Swept(TypedDict, total=False):
    """What is drawn: rows of a report, with what was taken in the end, or of an experiment, with scores."""

    rows: Rows
    beta: float | None
    percentile: float | None


def data(trials: Sequence[Trial]) -> SweepData | None:
    """The trials of (beta, P)."""
    rows: list[SweepRow] = [
        {
            "beta": t.beta, "percentile": t.percentile, "kl": t.kl, "agreement": t.agreement,
            "average_bits": t.average_bits,
        }
        for t in trials
        if t.beta is not None
    ]  # fmt: skip
    return {"rows": rows} if rows else None


def panels(data: Swept) -> list[Panel]:
    """A panel for each measure there is; the settings that were taken are ringed."""
    found = [r for r in data["rows"] if r.get("beta") is not None and r.get("percentile") is not None]
    chosen = (data.get("beta"), data.get("percentile"))
    return [p for key in MEASURES if (p := panel(key, found, chosen)) is not None]


def panel(key: str, found: Rows, chosen: tuple[float | None, float | None]) -> Panel | None:
    title, unit, factor, more = MEASURES[key]
    rows = [
        {
            "beta": r["beta"], "percentile": f"P{r['percentile']:g}", "value": factor * r[key],
            "chosen": (r["beta"], r["percentile"]) == chosen,
        }
        for r in found
        if r.get(key) is not None
    ]  # fmt: skip
    if not rows:
        return None
    best, worst = sorted((min(rows, key=value), max(rows, key=value)), key=value, reverse=more)
    text = f"Best {where(best, unit)}; worst {where(worst, unit)}."
    taken = next((r for r in rows if r["chosen"]), None)
    if taken is not None:
        text += f" Taken was {where(taken, unit)}, ringed."
    axis = f"{title.lower()}, {unit}" if unit else title.replace("the float network", "float")
    columns = {"beta": "β", "percentile": "percentile", "value": axis}
    return Panel(title, text, lines(rows, axis), rows, columns, height=220)


def value(r: Row) -> float:
    return float(r["value"])


def where(r: Row, unit: str) -> str:
    return f"{significant(r['value'], 4)}{f' {unit}' if unit else ''} at β = {r['beta']:g}, {r['percentile']}"


def lines(rows: list[Row], axis: str) -> Spec:
    names = sorted({r["percentile"] for r in rows})
    tokens = {name: f"series{1 + i % SERIES}" for i, name in enumerate(names)}
    shapes = {"domain": names, "range": [SHAPES[i % SERIES] for i in range(len(names))]}
    x = channel("beta", "weight β of the firing rate", axis={"grid": False, "tickCount": 6})
    y = channel("value", axis, scale={"zero": False}, axis={"tickCount": 5})
    tip = [channel("beta", "β"), channel("percentile", "", "nominal"), channel("value", axis, format=".4~r")]
    ring = {
        "transform": [{"filter": "datum.chosen"}],
        "mark": {"type": "point", "size": 190, "stroke": "@ink", "strokeWidth": 1.5, "aria": False},
    }
    return {
        "encoding": {"x": x, "y": y},
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 1.5, "aria": False},
                "encoding": {"color": colours("percentile", tokens, sort=names)},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
                "encoding": {
                    "color": colours("percentile", tokens, sort=names),
                    "shape": {"field": "percentile", "type": "nominal", "scale": shapes, "title": None},
                    "tooltip": tip,
                },
            },
            *([ring] if any(r["chosen"] for r in rows) else []),
        ],
    }


def look(report: Report) -> Swept | None:
    found, taken = report["figures"].get("sweep"), report["summary"]
    if found is None or not found["rows"]:
        return None
    return {"rows": found["rows"], "beta": taken.get("beta"), "percentile": taken.get("percentile")}


def of_runs(found: Mapping[str, Any]) -> Swept | None:
    """The rows of `experiment sweep` that have a beta and a percentile."""
    if found.get("experiment") != "sweep":
        return None
    recipes = {r["label"]: r["recipe"] for r in found["runs"] if r.get("recipe")}
    rows = [
        {key: recipes[r["method"]][key] for key in ("beta", "percentile")}
        | {key: r.get(key) for key in ("score", "kl", "agreement", "average_bits")}
        for r in found["rows"]
        if r["method"] in recipes
    ]
    return {"rows": rows}


def absent(report: Report) -> str:
    how = allocated_by(report)
    return f"nothing was searched, as the allocation is {how}; quantize with --recipe paper+w4m4"


FIGURE = Figure(
    "sweep",
    "the search for beta and percentile",
    panels,
    heading=Heading("sweep", "Sweep", "Search for β and percentile"),
    look=look,
    of_runs=of_runs,
    absent=absent,
)

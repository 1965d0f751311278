"""How much the two settings of the allocation matter: the weight of firing rates, and the percentile."""

from __future__ import annotations

from typing import Any

from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import significant

__all__ = ["panels"]

MEASURES = {  # key: (title, unit, factor, whether more is better)
    "score": ("Score of the test data", "%", 1, True),
    "kl": ("KL to the float network", "", 1, False),
    "agreement": ("Agreement with the float network", "%", 100, True),
}
SHAPES = ("circle", "square", "triangle-up", "diamond")
SERIES = len(SHAPES)


def panels(data: dict[str, Any]) -> list[Panel]:
    """A panel for each measure there is; the settings that were taken are ringed."""
    found = [r for r in data["rows"] if r.get("beta") is not None and r.get("percentile") is not None]
    chosen = (data.get("beta"), data.get("percentile"))
    return [p for key in MEASURES if (p := panel(key, found, chosen)) is not None]


def panel(key: str, found: list[Row], chosen: tuple[float | None, float | None]) -> Panel | None:
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

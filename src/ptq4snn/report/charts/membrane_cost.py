"""The paper's motivation: what states cost beside weights, against the batch size and the number of steps."""

from __future__ import annotations

from typing import Any

from ptq4snn.report.panel import Panel, Row, Spec, axis_of_bytes, channel, colours
from ptq4snn.report.units import size

__all__ = ["panels"]

SERIES = {
    "m32": "32-bit states",
    "this": "this model",
    "m4": "4-bit states, ideal",
    "weights": "weights alone",
}
TOKENS = {
    "32-bit states": "before",
    "this model": "after",
    "4-bit states, ideal": "after",
    "weights alone": "weights",
}
DASHES = {
    "32-bit states": [1, 0],
    "4-bit states, ideal": [2, 3],
    "this model": [1, 0],
    "weights alone": [6, 3],
}
COLUMNS = {"value": "", "series": "of", "bytes": "bytes"}


def panels(data: dict[str, Any]) -> list[Panel]:
    """Storage against the batch size, and traffic against T."""
    batch, time = (series(data["rows"], axis) for axis in ("batch", "T"))
    return [
        Panel(
            "Storage against batch size",
            f"{data['weights']:,} weights and the states of the whole batch. At batch {last(batch)}.",
            lines("batch size", "bytes held", batch),
            batch,
            COLUMNS | {"value": "batch"},
        ),
        Panel(
            "State traffic against time steps",
            f"States read and written once a step, for one sample. At T = {last(time)}.{left_out(data)}",
            lines("time steps T", "bytes moved", time),
            time,
            COLUMNS | {"value": "T"},
        ),
    ]


def left_out(data: dict[str, Any]) -> str:
    """The paper's curves count every neuron; a model need not keep the states of all of them."""
    gone = data["states"] - data["carried_states"]
    if not gone or "weight_bytes" not in data:
        return ""
    why = "where a neuron runs one step only, or its state is always zero"
    return f" This model keeps no state {why} ({gone:,} of {data['states']:,})."


def series(rows: list[Row], axis: str) -> list[Row]:
    """One row for each point of a line; the axes are logarithmic, and have no place for nothing."""
    return [
        {"value": r["value"], "series": title, "bytes": r[key], "size": size(r[key])}
        for key, title in SERIES.items()
        for r in rows
        if r["axis"] == axis and r.get(key)
    ]


def last(rows: list[Row]) -> str:
    """The right end of every line in words."""
    end = max(r["value"] for r in rows)
    return f"{end}: " + ", ".join(f"{r['series']} {r['size']}" for r in rows if r["value"] == end)


def lines(x: str, y: str, rows: list[Row]) -> Spec:
    """Both axes logarithmic: lines of the same slope differ by a factor."""
    used = [t for t in TOKENS if any(r["series"] == t for r in rows)]
    values = sorted({r["value"] for r in rows})
    dashes = {"domain": used, "range": [DASHES[t] for t in used]}
    legend = {"columns": 2, "symbolStrokeWidth": 2, "symbolSize": 300, "symbolType": "stroke"}
    return {
        "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 26, "strokeWidth": 0}},
        "encoding": {
            "x": channel(
                "value", x, scale={"type": "log", "base": 2}, axis={"values": values, "grid": False}
            ),
            "y": channel("bytes", y, scale={"type": "log", "base": 2}, axis=axis_of_bytes(tickCount=6)),
            "color": colours("series", {t: TOKENS[t] for t in used}, legend=legend, sort=None),
            "strokeDash": {
                "field": "series",
                "type": "nominal",
                "scale": dashes,
                "title": None,
                "legend": legend,
            },
            "tooltip": [channel("series", "", "nominal"), channel("value", x), channel("size", y, "nominal")],
        },
    }

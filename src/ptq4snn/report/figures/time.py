"""The same figures for every time step: of all layers as a map, or of chosen ones as lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.report.figure import Figure
from ptq4snn.report.figures.layers import LayersData, choose, look, times100
from ptq4snn.report.panel import Panel, Row, Spec, channel, crowd
from ptq4snn.report.units import significant
from ptq4snn.schema.report_types import Neuron

__all__ = ["FIGURE", "panels"]

MOST_LINES = 4
MOST_STEPS = 64  # columns of a map; longer runs are averaged in groups of steps


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    unit: str
    signed: bool = False


MEASURES = (
    Measure("flips", "Flipped spikes", "%"),
    Measure("saturation", "Saturated states", "%"),
    Measure("drift", "Change of the firing rate", "points", signed=True),
    Measure("divergence", "Distance of the states", "θ"),
)


def panels(data: LayersData, neurons: Sequence[str] = ()) -> list[Panel]:
    if len(neurons) > MOST_LINES:
        raise PTQ4SNNError(f"{len(neurons)} neurons are too many lines: name at most {MOST_LINES}")
    rows = [r for i, n in choose(data["neurons"], neurons) for r in steps(i, n)]
    return [p for p in (panel(m, rows, as_map=not neurons) for m in MEASURES) if p is not None]


def steps(i: int, n: Neuron) -> list[Row]:
    """A row for each step, or for each group of steps."""
    seen: Row = {**(n.get("over_time") or {})}
    rate = seen.get("firing_rate") or {}
    before, after = rate.get("before") or [], rate.get("after") or []
    drift = [None if a is None or b is None else 100 * (b - a) for a, b in zip(before, after, strict=False)]
    series = {
        "flips": [times100(v) for v in seen.get("flip_rate") or []],
        "saturation": seen.get("saturation") or [],
        "drift": drift,
        "divergence": n.get("divergence") or [],
    }
    length = max(map(len, series.values()))
    group = -(-length // MOST_STEPS)
    return [
        {"layer": i, "name": n["name"], "step": t + 1}
        | {key: mean(values[t : t + group]) for key, values in series.items()}
        for t in range(0, length, group or 1)
    ]


def mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def panel(m: Measure, rows: list[Row], as_map: bool) -> Panel | None:
    known = [r for r in rows if r[m.key] is not None]
    if not known:
        return None
    worst = max(known, key=lambda r: abs(r[m.key]))
    first, last = (mean([abs(r[m.key]) for r in known if r["step"] == t]) for t in ends(known))
    layers = list(dict.fromkeys(r["layer"] for r in rows))
    signs = ", whatever the sign" if m.signed else ""
    return Panel(
        f"{m.title} over time",
        f"On average{signs}, {significant(first)} {m.unit} in the first step and {significant(last)} "
        f"{m.unit} in the last; the largest is {significant(worst[m.key])} {m.unit}, in step {worst['step']} "
        f"of layer {worst['layer']} ({worst['name']}).",
        heat_map(m, known, layers) if as_map else lines(m, known),
        rows,
        {"layer": "#", "name": "layer", "step": "step", m.key: f"{m.title.lower()}, {m.unit}"},
        height=max(120, min(480, 10 * len(layers))) if as_map else 200,
        width=200,
    )


def ends(rows: list[Row]) -> tuple[int, int]:
    times = [r["step"] for r in rows]
    return min(times), max(times)


def tips(m: Measure) -> list[Spec]:
    return [
        channel("layer", "#"), channel("name", "layer", "nominal"), channel("step", "step"),
        channel(m.key, f"{m.title.lower()}, {m.unit}", format=".3~r"),
    ]  # fmt: skip


def ceiling(value: float) -> float:
    """The next number of two digits, for the end of a scale."""
    if not value:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit) * unit:.2g}")


def heat_map(m: Measure, rows: list[Row], layers: list[int]) -> Spec:
    """A row for each layer, also for those without a value; a column for each step."""
    reach = ceiling(max(abs(r[m.key]) for r in rows))
    if m.signed:
        scale = {"domain": [-reach, 0, reach], "range": ["@less", "@zero", "@more"], "interpolate": "lab"}
    else:
        scale = {"domain": [0, reach], "range": ["@low", "@high"], "interpolate": "lab"}
    legend = {
        "title": m.unit, "titleOrient": "right", "format": ".3~r", "gradientLength": 130,
        "gradientThickness": 8,
        "values": [-reach, 0, reach] if m.signed else [0, reach / 2, reach],
    }  # fmt: skip
    return {
        "mark": {"type": "rect", **crowd(rows)},
        "encoding": {
            "x": channel("step", "time step", "ordinal", axis={"labelAngle": 0, "ticks": False}),
            "y": channel("layer", "layer", "ordinal", scale={"domain": layers}, axis={"ticks": False}),
            "color": channel(m.key, scale=scale, legend=legend),
            "tooltip": tips(m),
        },
    }


def lines(m: Measure, rows: list[Row]) -> Spec:
    names = list(dict.fromkeys(r["name"] for r in rows))
    steps_apart = {"tickMinStep": 1, "grid": False}
    return {
        "mark": {"type": "line", "point": True, "strokeWidth": 2},
        "encoding": {
            "x": channel("step", "time step", axis=steps_apart, scale={"zero": False, "nice": False}),
            "y": channel(m.key, m.unit, axis={"tickCount": 5}),
            "color": {
                "field": "name", "type": "nominal", "title": None, "legend": {"columns": 1},
                "scale": {"domain": names, "range": [f"@series{i + 1}" for i in range(len(names))]},
            },
            "tooltip": tips(m),
        },
    }  # fmt: skip


FIGURE = Figure("time", "the same for every time step; lines with --neuron", panels, look=look, chooses=True)

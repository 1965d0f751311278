"""What quantization did to every layer: saturated states, flipped spikes, changed firing rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours, crowd
from ptq4snn.report.units import significant
from ptq4snn.schema.report_types import Neuron, Report

__all__ = ["FIGURE", "LayersData", "choose", "look", "panels"]

ABOUT = {"layer": "#", "name": "layer", "stage": "stage"}
FEW = 24  # layers that fit into half a page
RATE = "spikes a step, %"
KINDS = {"before": "float", "after": "quantized"}


class LayersData(TypedDict):
    neurons: list[Neuron]


def look(report: Report) -> LayersData | None:
    """The report's own rows."""
    return {"neurons": report["neurons"]} if report["neurons"] else None


def choose(found: list[Neuron], neurons: Sequence[str]) -> list[tuple[int, Neuron]]:
    """(number, neuron) of those that are named, or of all; numbers are those of the layer table."""
    numbered = list(enumerate(found, 1))
    known = [n["name"] for n in found]
    for name in neurons:
        if name not in known:
            raise PTQ4SNNError(f"this run has no neuron {name!r}: it has {', '.join(known)}")
    return [(i, n) for i, n in numbered if not neurons or n["name"] in neurons]


def panels(data: LayersData, neurons: Sequence[str] = ()) -> list[Panel]:
    rows = [numbers(i, n) for i, n in choose(data["neurons"], neurons)]
    return [
        p
        for p in (
            bars(rows, "saturation", "Saturated states", "saturated states, %"),
            bars(rows, "flips", "Flipped spikes", "flipped spikes, %"),
            rates(rows),
        )
        if p is not None
    ]


def numbers(i: int, n: Neuron) -> Row:
    """A layer's figures in per cent."""
    rate = n["firing_rate"]
    return {
        "layer": i, "name": n["name"], "stage": n.get("stage") or "", "saturation": n["saturation"],
        "flips": times100(n["flip_rate"]), "before": times100(rate["before"]),
        "after": times100(rate["after"]),
    }  # fmt: skip


def times100(share: float | None) -> float | None:
    return None if share is None else 100 * share


def bars(rows: list[Row], key: str, title: str, axis: str) -> Panel | None:
    known = [r for r in rows if r[key] is not None]
    if not known:
        return None
    worst = max(known, key=lambda r: r[key])
    middle = sorted(r[key] for r in known)[len(known) // 2]
    return Panel(
        title,
        f"{significant(middle)} % in the median of {len(known)} layers; at most {significant(worst[key])} %, "
        f"in layer {worst['layer']} ({worst['name']}).",
        {
            "mark": {"type": "bar", "color": "@after", "cornerRadiusEnd": 1, **crowd(known)},
            "encoding": {
                "x": along(rows),
                "y": channel(key, axis, axis={"tickCount": 5}),
                "tooltip": tips(key, axis),
            },
        },
        known,
        ABOUT | {key: axis},
        height=180,
        width=420,
        wide=len(rows) > FEW,
    )


def along(rows: list[Row]) -> Spec:
    """All layers, also those that a chart has nothing to tell about."""
    every = {"domain": list(dict.fromkeys(r["layer"] for r in rows))}
    axis = {"labelAngle": 0, "ticks": False}
    return channel("layer", "layer, in the order of execution", "ordinal", scale=every, axis=axis)


def tips(key: str, title: str) -> list[Spec]:
    return [
        channel("layer", "#"), channel("name", "layer", "nominal"), channel("stage", "stage", "nominal"),
        channel(key, title, format=".3~r"),
    ]  # fmt: skip


def rates(rows: list[Row]) -> Panel | None:
    """A bar for the float network and a line for the quantized one."""
    known = [r for r in rows if r["before"] is not None and r["after"] is not None]
    if not known:
        return None
    worst = max(known, key=lambda r: abs(r["after"] - r["before"]))
    rates = [{**r, "rate": r[key], "kind": kind} for r in known for key, kind in KINDS.items()]
    return Panel(
        "Firing rates before and after",
        f"{len(known)} layers; the largest change is in layer {worst['layer']} ({worst['name']}), from "
        f"{significant(worst['before'])} % to {significant(worst['after'])} %.",
        bars_and_ticks(rates),
        rates,
        ABOUT | {"kind": "network", "rate": "spikes, %"},
        height=180,
        width=420,
        wide=len(rows) > FEW,
    )


def bars_and_ticks(rows: list[Row]) -> Spec:
    tokens = {kind: key for key, kind in KINDS.items()}
    colour = colours("kind", tokens, sort=[*tokens], legend={"symbolType": "square"})
    hidden, tip = crowd(rows), [*tips("rate", RATE), channel("kind", "network", "nominal")]
    return {
        "encoding": {
            "x": along(rows),
            "y": channel("rate", RATE, axis={"tickCount": 5}),
            "color": colour,
            "tooltip": tip,
        },
        "layer": [
            {
                "transform": [{"filter": f"datum.kind == '{KINDS['before']}'"}],
                "mark": {"type": "bar", "cornerRadiusEnd": 1, **hidden},
            },
            {
                "transform": [{"filter": f"datum.kind == '{KINDS['after']}'"}],
                "mark": {"type": "tick", "thickness": 3, "opacity": 1, "width": {"band": 1}, **hidden},
            },
        ],
    }


FIGURE = Figure(
    "layers",
    "saturation, flipped spikes, firing rates of layers",
    panels,
    heading=Heading(
        "behaviour",
        "Inside",
        "What changed inside",
        "States at the end of their range, flipped spikes, firing rates: of each layer, then of each step.",
    ),
    look=look,
    columns=1,
    chooses=True,
)

"""Weights and float states of single channels on one axis, with the levels that both may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import percent, significant

__all__ = ["middle", "neurons_of", "panels"]

LEVELS, WEIGHT_LEVELS = "levels of the state", "levels of the weights"
TOKENS = {"weights": "weights", "float states": "before", LEVELS: "after", WEIGHT_LEVELS: "weights"}
STRIPS = {LEVELS: (-0.14, -0.03), WEIGHT_LEVELS: (-0.28, -0.17)}  # where they stand under the histograms
LABELS = "datum.label == 'weights' ? 'weights, and their levels' : datum.label"
MOST_LEVELS = 256
THETA = 1.0


def neurons_of(data: dict[str, Any]) -> list[str]:
    """Neurons with data, in the order of the network."""
    return list(dict.fromkeys(r["neuron"] for r in data["rows"]))


def middle(data: dict[str, Any]) -> str:
    """The one that is shown where none is asked for."""
    names = neurons_of(data)
    return names[len(names) // 2]


def panels(data: dict[str, Any], neurons: Sequence[str] = ()) -> list[Panel]:
    """A narrow, a middle and a wide channel of each neuron."""
    known = neurons_of(data)
    for name in neurons:
        if name not in known:
            raise PTQ4SNNError(f"there are no distributions of {name!r}: this run has {', '.join(known)}")
    chosen = neurons or [middle(data)]
    several = len(chosen) > 1
    return [one(r, several) for name in chosen for r in data["rows"] if r["neuron"] == name]


def one(r: Row, several: bool) -> Panel:
    title = f"{r['which'].capitalize()} channel" + (f" of {r['neuron']}" if several else "")
    k = "" if r["k"] is None else f", k = {significant(r['k'])}"
    description = (
        f"{r['neuron']}, channel {r['channel']}: states reach {significant(r['largest_state'])} θ, weights "
        f"{significant(r['largest_weight'])} θ; {r['bits']} bits{k}, a level every "
        f"{significant(r['scale'])} θ; {percent(r['outside'])} of the float states lie beyond the levels."
    )
    rows = [*outline(r["weights"], "weights"), *outline(r["states"], "float states")]
    rows += levels(r, LEVELS, r["scale"], r["bits"], r["zero"])
    rows += levels(r, WEIGHT_LEVELS, r["weight_scale"], r["weight_bits"])
    columns = {"what": "of", "x": "from θ", "share": "share of the largest bin"}
    return Panel(title, description, drawing(), rows, columns, height=170, width=190)


def outline(histogram: Row, what: str) -> list[Row]:
    """Steps of a histogram over its largest bin, closed at both ends."""
    edges, counts = merged(histogram["edges"], histogram["counts"])
    top = max(counts, default=0) or 1
    steps = [{"what": what, "x": x, "share": n / top} for x, n in zip(edges, counts, strict=False)]
    return [{"what": what, "x": edges[0], "share": 0}, *steps, {"what": what, "x": edges[-1], "share": 0}]


def merged(edges: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Wider bins where there are few values, so that a shape is seen and not each value."""
    while len(counts) > 2 * math.sqrt(sum(counts)) and len(counts) > 8 and len(counts) % 2 == 0:
        edges, counts = edges[::2], [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
    return edges, counts


def levels(r: Row, what: str, scale: float | None, bits: int | None, zero: int = 0) -> list[Row]:
    """scale * (zero + i), as far as there are states or weights."""
    if scale is None or bits is None or 2**bits > MOST_LEVELS:
        return []
    half = 2 ** (bits - 1)
    values = [scale * (zero + i) for i in range(-half, half)]
    edges = [*r["states"]["edges"], *r["weights"]["edges"]]
    low, high = min(edges), max(edges)
    slack = 1e-6 * (high - low)  # a level on the edge belongs to it
    return [{"what": what, "x": v, "share": None} for v in values if low - slack <= v <= high + slack]


def drawing() -> Spec:
    """The histograms above strips of levels."""
    x = channel("x", "value, in thresholds θ", axis={"grid": False, "tickCount": 4})
    named = [what for what in TOKENS if what != WEIGHT_LEVELS]  # of the weights' colour, and below them
    colour = colours(
        "what", TOKENS, legend={"symbolType": "square", "values": named, "labelExpr": LABELS}, sort=[*TOKENS]
    )
    scale = {"domain": [-0.3, 1.0], "nice": False}
    hidden: Spec = {"scale": scale, "axis": None}
    return {
        "encoding": {"x": x},
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.share)"}],
                "mark": {
                    "type": "area", "interpolate": "step-after", "fillOpacity": 0.35,
                    "line": {"strokeWidth": 1}, "aria": False,
                },
                "encoding": {"y": channel("share", stack=None, **hidden), "color": colour},
            },
            *(
                {
                    "transform": [{"filter": f"datum.what == '{what}'"}],
                    "mark": {"type": "rule", "strokeWidth": 1, "aria": False},
                    "encoding": {"y": {"datum": low, **hidden}, "y2": {"datum": high}, "color": colour},
                }
                for what, (low, high) in STRIPS.items()
            ),
            {
                "transform": [
                    {"aggregate": [{"op": "max", "field": "x", "as": "reach"}]},
                    {"filter": f"datum.reach >= {THETA}"},
                ],
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": "@muted", "aria": False},
                "encoding": {"x": {"datum": THETA}, "y": {"datum": 0, **hidden}, "y2": {"datum": 1}},
            },
        ],
    }  # fmt: skip

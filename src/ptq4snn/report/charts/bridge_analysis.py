"""The exponents that the bridge chose, and its scales against those an observer of its own would choose."""

from __future__ import annotations

import math
from typing import Any

from ptq4snn.report.panel import Panel, Row, Spec, bits_scale, channel, crowd
from ptq4snn.report.units import percent, significant

__all__ = ["panels"]

MARGIN = 1.15  # around the outermost dots


def panels(data: dict[str, Any]) -> list[Panel]:
    """A histogram of k, and a scatter plot with the line of equal scales."""
    return [p for p in (exponents(data), scales(data)) if p is not None]


def exponents(data: dict[str, Any]) -> Panel | None:
    rows = [{"k": int(k), "channels": n} for k, n in sorted(data["k"].items(), key=lambda pair: int(pair[0]))]
    if not rows:
        return None
    total = sum(r["channels"] for r in rows)
    most = max(rows, key=lambda r: r["channels"])
    return Panel(
        "Chosen exponents k",
        f"k runs from {significant(rows[0]['k'])} to {significant(rows[-1]['k'])} over {total:,} channels; "
        f"{significant(most['k'])} is the most frequent, in {percent(most['channels'] / total)} of them.",
        {
            "mark": {"type": "bar", "color": "@after", "cornerRadiusEnd": 2},
            "encoding": {
                "x": channel("k", "exponent k", "ordinal", axis={"labelAngle": 0}),
                "y": channel("channels", "channels", axis={"tickCount": 5, "tickMinStep": 1}),
                "tooltip": [channel("k", "k"), channel("channels", "channels", format=",")],
            },
        },
        rows,
        {"k": "k", "channels": "channels"},
    )


def scales(data: dict[str, Any]) -> Panel | None:
    rows = [pick(r) for r in data["rows"] if (r["bridged"] or 0) > 0 and (r["observer"] or 0) > 0]
    if not rows:
        return None
    ratios = sorted(r["bridged"] / r["observer"] for r in rows)
    median = data.get("median_ratio") or ratios[len(ratios) // 2]
    near = data.get("within_factor_2")
    near = sum(0.5 <= q <= 2 for q in ratios) / len(ratios) if near is None else near
    both = [r[key] for r in rows for key in ("bridged", "observer")]
    ends = [min(both) / MARGIN, max(both) * MARGIN]
    return Panel(
        "Bridged against observer scales",
        f"Each dot is a channel. The observer takes any scale, that of least squared error around zero. The "
        f"bridged scale is {significant(median)} times it in the median, and within a factor of two for "
        f"{percent(near)} of the channels. Equal scales are dashed.",
        scatter(rows, ends),
        rows,
        {
            "neuron": "neuron",
            "channel": "channel",
            "bits": "bits",
            "bridged": "bridged θ",
            "observer": "observer θ",
        },
    )


def pick(r: Row) -> Row:
    return {k: r[k] for k in ("neuron", "channel", "bridged", "observer")} | {"bits": str(r["bits"])}


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; the powers alone on a long axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    found = [step * 10.0**p for p in powers for step in steps]
    return [v for v in found if low <= v <= high]


def scatter(rows: list[Row], ends: list[float]) -> Spec:
    scale = {"type": "log", "domain": ends, "nice": False}
    axis = {"values": ticks(*ends), "format": "~g"}
    used = sorted({int(r["bits"]) for r in rows})
    keys = {
        "neuron": "nominal",
        "channel": "nominal",
        "bits": "nominal",
        "bridged": "quantitative",
        "observer": "quantitative",
    }
    return {
        "encoding": {
            "x": channel("observer", "observer scale, θ", scale=scale, axis=axis),
            "y": channel("bridged", "bridged scale, θ", scale=scale, axis=axis),
        },
        "layer": [
            {
                "mark": {"type": "circle", "size": 14, "opacity": 0.75, "clip": True, **crowd(rows)},
                "encoding": {
                    "color": bits_scale(used),
                    "tooltip": [
                        channel(k, k, kind, **({"format": ".3~g"} if kind[0] == "q" else {}))
                        for k, kind in keys.items()
                    ],
                },
            },
            {
                "data": {"values": [{"observer": end, "bridged": end} for end in ends]},
                "mark": {
                    "type": "line",
                    "strokeDash": [4, 3],
                    "strokeWidth": 1.5,
                    "color": "@ink",
                    "aria": False,
                },
            },
        ],
    }

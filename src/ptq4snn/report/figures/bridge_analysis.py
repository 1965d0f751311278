"""The exponents that the bridge chose, and its scales against those an observer of its own would choose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from ptq4snn.network.plan import Plan
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.figures.common import NOTHING, evenly, in_budget
from ptq4snn.report.panel import Panel, Row, Spec, bits_scale, channel, crowd
from ptq4snn.report.text import bar
from ptq4snn.report.units import percent, significant
from ptq4snn.schema.figure_types import BridgeData, BridgeRow
from ptq4snn.schema.report_types import Report

__all__ = ["FIGURE", "data", "panels", "text"]

OBSERVED = 250  # rows at most: a search each, about a millisecond
SHIFTED = ("bridge", "layerwise", "flowq")  # couplings whose scales are powers of two apart
MARGIN = 1.15  # around the outermost dots
BAR = 40
Thetas = Callable[[str], Sequence[float]]  # the unit of a neuron's states, for each channel
Observer = Callable[[str, Sequence[int]], Sequence[float]]  # scales it would choose for channels of a neuron


def data(plan: Plan, thetas: Thetas, observer: Observer) -> BridgeData | None:
    """Exponents of all channels in the budget, and scales of some; None where none is coupled by a shift."""
    neurons = {n: p for n, p in in_budget(plan).items() if p.coupling in SHIFTED}
    channels = [(n, c) for n, p in neurons.items() for c in range(p.channels)]
    if not channels:
        return None
    shown: dict[str, list[int]] = {}
    for i in evenly(len(channels), OBSERVED):
        shown.setdefault(channels[i][0], []).append(channels[i][1])
    rows: list[BridgeRow] = []
    for name, some in shown.items():
        p, theta = neurons[name], thetas(name)
        rows += [
            {
                "neuron": name, "channel": c, "bits": p.bits[c], "k": p.k[c],
                "bridged": p.scales[c] / theta[c], "observer": scale / theta[c],
            }
            for c, scale in zip(some, observer(name, some), strict=True)
        ]  # fmt: skip
    ratios = [r["bridged"] / r["observer"] for r in rows if r["observer"] > 0]
    ks = Counter(k for p in neurons.values() for k in p.k if k is not None)
    return {
        "k": {str(k): ks[k] for k in sorted(ks)},
        "channels": len(channels),
        "median_ratio": median(ratios) if ratios else None,
        "within_factor_2": sum(0.5 <= r <= 2 for r in ratios) / len(ratios) if ratios else None,
        "rows": rows,
    }


def panels(data: BridgeData) -> list[Panel]:
    """A histogram of k, and a scatter plot with the line of equal scales."""
    return [p for p in (exponents(data), scales(data)) if p is not None]


def exponents(data: BridgeData) -> Panel | None:
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


def scales(data: BridgeData) -> Panel | None:
    rows = [pick(r) for r in data["rows"] if (r["bridged"] or 0) > 0 and (r["observer"] or 0) > 0]
    if not rows:
        return None
    ratios = sorted(r["bridged"] / r["observer"] for r in rows)
    middle = data.get("median_ratio") or ratios[len(ratios) // 2]
    near = data.get("within_factor_2")
    near = sum(0.5 <= q <= 2 for q in ratios) / len(ratios) if near is None else near
    both = [r[key] for r in rows for key in ("bridged", "observer")]
    ends = [min(both) / MARGIN, max(both) * MARGIN]
    return Panel(
        "Bridged against observer scales",
        f"Each dot is a channel. The observer takes any scale, that of least squared error around zero. The "
        f"bridged scale is {significant(middle)} times it in the median, and within a factor of two for "
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


def pick(r: BridgeRow) -> Row:
    return {
        "neuron": r["neuron"], "channel": r["channel"], "bridged": r["bridged"], "observer": r["observer"],
        "bits": str(r["bits"]),
    }  # fmt: skip


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


def text(data: BridgeData) -> list[str]:
    if not data["rows"]:
        return [NOTHING]
    ks = {int(k): n for k, n in data["k"].items()}
    total = sum(ks.values()) or 1
    lines = ["k      channels", *(f"{k:<4} {n:>6}  {bar(n / total, BAR)}" for k, n in ks.items())]
    near = data["within_factor_2"]
    if data["median_ratio"] is not None and near is not None:
        lines.append(
            f"bridged over observer scale: median {data['median_ratio']:.3f}; "
            f"{100 * near:.1f} % within a factor of 2"
        )
    return lines


def absent(report: Report) -> str:
    coupling = (report["summary"].get("recipe") or {}).get("coupling")
    return f"states are not coupled ({coupling}); quantize with --coupling bridge"


FIGURE = Figure(
    "bridge-analysis",
    "exponents k; bridged against observer scales",
    panels,
    text,
    Heading(
        "bridge",
        "Bridge",
        "The bridge between weight and state scales",
        "A state's scale is the weight's scale times 2 to the k. An observer would choose any scale.",
    ),
    absent=absent,
)

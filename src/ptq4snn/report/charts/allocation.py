"""Which channels got how many bits: by rank of their score, and in every stage of the network."""

from __future__ import annotations

from typing import Any

from ptq4snn.report.panel import MANY, Panel, Row, Spec, bits_scale, channel, crowd
from ptq4snn.report.units import percent, significant

__all__ = ["panels"]


def panels(data: dict[str, Any]) -> list[Panel]:
    """The ranking where there is one, and the composition of the stages."""
    return [p for p in (ranking(data), composition(data)) if p is not None]


def ranking(data: dict[str, Any]) -> Panel | None:
    found = [r for r in data["rows"] if r.get("score") is not None]
    if not found:
        return None
    rows = slices(found)
    widths = sorted({r["bits"] for r in found}, reverse=True)
    shares = [f"{percent(sum(r['bits'] == b for r in found) / len(found))} have {b} bits" for b in widths]
    how = "" if data.get("beta") is None else f" with β = {data['beta']:g}, P = {data['percentile']:g}"
    return Panel(
        "Score ranking",
        f"Channels from the highest score to the lowest{how}: {', '.join(shares)}; "
        f"{significant(data['average_bits'])} bits on average.",
        bars(rows),
        rows,
        {"rank": "rank", "neuron": "neuron", "channel": "channel", "score": "score", "bits": "bits"},
        width=420,
    )


def slices(found: list[Row]) -> list[Row]:
    """Each row as wide as the ranks up to the next one, as not every channel has a row."""
    ranks = [r.get("rank", i + 1) for i, r in enumerate(found)]
    overlap = 0.3 if len(ranks) > MANY else 0.0  # no light between thin bars
    ends = [r + overlap for r in (*ranks[1:], ranks[-1] + 1)]
    return [
        {k: r[k] for k in ("neuron", "channel", "score")} | {"bits": str(r["bits"]), "rank": rank, "end": end}
        for r, rank, end in zip(found, ranks, ends, strict=True)
    ]


def bars(rows: list[Row]) -> Spec:
    used = sorted({int(r["bits"]) for r in rows})
    ranks = {"grid": False, "format": ",d", "tickCount": 6}
    return {
        "mark": {"type": "rect", **crowd(rows)},
        "encoding": {
            "x": channel("rank", "rank of the channel", scale={"nice": False, "zero": False}, axis=ranks),
            "x2": {"field": "end"},
            "y": channel("score", "score", axis={"tickCount": 5}),
            "y2": {"datum": 0},
            "color": bits_scale(used),
            "tooltip": [
                channel("rank", "rank", format=","), channel("neuron", "neuron", "nominal"),
                channel("channel", "channel", "nominal"), channel("score", "score", format=".3f"),
                channel("bits", "bits", "nominal"),
            ],
        },
    }  # fmt: skip


def composition(data: dict[str, Any]) -> Panel | None:
    rows = [
        {"stage": stage, "bits": bits, "order": int(bits), "share": share}
        for stage, widths in data["stages"].items()
        for bits, share in sorted(widths.items(), key=lambda pair: int(pair[0]))
    ]
    if not rows:
        return None
    order = [*data["stages"]]
    bits = {s: sum(r["order"] * r["share"] for r in rows if r["stage"] == s) for s in order}
    least, most = min(order, key=bits.__getitem__), max(order, key=bits.__getitem__)
    return Panel(
        "Bits in every stage",
        f"Share of the states of each width in {len(order)} stages. {least} has the fewest bits, "
        f"{significant(bits[least])} on average ({shares(rows, least)}); {most} the most, "
        f"{significant(bits[most])} ({shares(rows, most)}).",
        stacked(order, sorted({r["order"] for r in rows})),
        rows,
        {"stage": "stage", "bits": "bits", "share": "share"},
        height=max(160, 26 * len(order)),
        width=420,
    )


def shares(rows: list[Row], stage: str) -> str:
    return ", ".join(f"{percent(r['share'])} at {r['bits']} bits" for r in rows if r["stage"] == stage)


def stacked(order: list[str], used: list[int]) -> Spec:
    names = {"labelLimit": 150, "ticks": False, "labelPadding": 6}
    per_cent = {"format": ".0%", "tickCount": 5, "grid": False}
    return {
        "mark": {"type": "bar", "stroke": "@paper", "strokeWidth": 1},
        "encoding": {
            "y": channel("stage", None, "nominal", sort=order, axis=names),
            "x": channel("share", "share of the states", stack="normalize", axis=per_cent),
            "color": bits_scale(used),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [
                channel("stage", "stage", "nominal"), channel("bits", "bits", "nominal"),
                channel("share", "share", format=".1%"),
            ],
        },
    }  # fmt: skip

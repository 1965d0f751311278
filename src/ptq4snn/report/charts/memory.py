"""What has to be kept for one sample, before and after, part by part."""

from __future__ import annotations

from typing import Any

from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import size, smaller

__all__ = ["panels"]

KINDS = {"before": "float32", "after": "quantized"}


def panels(data: dict[str, Any]) -> list[Panel]:
    """Two bars for each part and for the total."""
    parts = [r for r in data["rows"] if r["before"] or r["after"]]
    total: Row = {"part": "total", **{k: sum(r[k] or 0 for r in parts) for k in KINDS}}
    rows: list[Row] = [
        {"part": r["part"], "kind": title, "bytes": r[k], "size": size(r[k])}
        for r in (total, *parts)
        for k, title in KINDS.items()
    ]
    ratio = smaller(total["before"], total["after"])
    words = [f"{r['part']} {size(r['before'])} to {size(r['after'])}" for r in parts]
    return [
        Panel(
            "Memory for one sample",
            f"From {size(total['before'])} to {size(total['after'])} in all"
            f"{f', {ratio} smaller' if ratio else ''}: {', '.join(words)}.",
            bars(["total", *(r["part"] for r in parts)], max(r["bytes"] for r in rows)),
            rows,
            {"part": "part", "kind": "network", "bytes": "bytes", "size": "size"},
            height=44 * (1 + len(parts)),
            width=420,
        )
    ]


def bars(order: list[str], longest: float) -> Spec:
    """Labels stand for the axis; they need room behind the longest bar."""
    y = channel("part", None, "nominal", sort=order, axis={"ticks": False, "labelPadding": 8})
    inner = {"field": "kind", "sort": [*KINDS.values()]}
    x = channel("bytes", None, scale={"domainMin": 0, "domainMax": 1.25 * longest, "nice": False}, axis=None)
    tokens = {title: key for key, title in KINDS.items()}
    return {
        "encoding": {"y": y, "yOffset": inner, "x": x},
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {"color": colours("kind", tokens, sort=[*tokens])},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "aria": False},
                "encoding": {"text": {"field": "size"}},
            },
        ],
    }

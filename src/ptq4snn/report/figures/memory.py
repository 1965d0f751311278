"""What has to be kept for one sample, before (float32) and after, part by part."""

from __future__ import annotations

from ptq4snn.cost.traffic import Resident, Residents
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.units import size, smaller
from ptq4snn.schema.figure_types import MemoryData

__all__ = ["FIGURE", "data", "panels"]

KINDS = {"before": "float32", "after": "quantized"}


def data(found: Residents) -> MemoryData:
    """Bytes of one sample by what holds them."""

    def parts(r: Resident) -> dict[str, int]:
        return {
            "weights": r.weights, "scales and biases": r.constants, "states": r.states,
            "metadata": r.metadata, "stream buffers": r.streams,
        }  # fmt: skip

    before, after = parts(found.before), parts(found.packed)
    return {"rows": [{"part": p, "before": before[p], "after": after[p]} for p in before]}


def panels(data: MemoryData) -> list[Panel]:
    """Two bars for each part and for the total."""
    parts = [r for r in data["rows"] if r["before"] or r["after"]]
    total: Row = {"part": "total"}
    total |= {"before": sum(r["before"] or 0 for r in parts), "after": sum(r["after"] or 0 for r in parts)}
    rows: list[Row] = [
        {"part": r["part"], "kind": title, "bytes": r[k], "size": size(r[k])}
        for r in (total, *map(dict, parts))
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


FIGURE = Figure(
    "memory",
    "memory for one sample before and after, part by part",
    panels,
    heading=Heading("memory", "Memory", "Memory before and after"),
    columns=1,
)

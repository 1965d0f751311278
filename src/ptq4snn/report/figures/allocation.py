"""Which channels got how many bits: by rank of their score, and in every stage of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ptq4snn.cost.neuron_facts import stages_of
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.figures.common import NOTHING, allocated_by, evenly, in_budget
from ptq4snn.report.panel import MANY, Panel, Row, Spec, bits_scale, channel, crowd
from ptq4snn.report.text import bar, table
from ptq4snn.report.units import percent, significant
from ptq4snn.schema.figure_types import AllocationData, AllocationRow
from ptq4snn.schema.report_types import Report

__all__ = ["FIGURE", "LEADS", "Ranked", "data", "panels", "text"]

ROWS = 2000  # at most
BAR = 40
RANKS = 20  # parts of a ranking that are printed
LEADS = {  # by what bits were given
    "mpba": "Channels that fire often or matter much get more bits, the others fewer.",
    "benefit": "Channels whose states gain most from more bits get them, the others fewer.",
}


class Ranked(NamedTuple):
    """A channel with its score, and what the score was made of."""

    neuron: str
    channel: int
    score: float
    rate: float
    sensitivity: float


def data(plan: Plan, ranked: Sequence[Ranked]) -> AllocationData | None:
    """None where nothing is in the budget. ranked: from the highest score on; none where no score decided."""
    neurons = in_budget(plan)
    if not neurons:
        return None
    stages = stages_of(plan.neurons)
    return {
        "by": "uniform" if not plan.mixed else "benefit" if plan.beta is None else "mpba",
        "beta": plan.beta,
        "percentile": plan.percentile,
        "average_bits": plan.average_bits(),
        "stages": _shares(neurons, stages),
        "rows": [_row(rank, ranked[rank], plan, stages) for rank in evenly(len(ranked), ROWS)],
    }


def _row(rank: int, r: Ranked, plan: Plan, stages: dict[str, str]) -> AllocationRow:
    neuron = plan.neurons[r.neuron]
    return {
        "rank": rank + 1, "neuron": r.neuron, "channel": r.channel, "stage": stages[r.neuron],
        "score": r.score, "rate": r.rate, "sensitivity": r.sensitivity, "bits": neuron.bits[r.channel],
        "elements": neuron.elements,
    }  # fmt: skip


def _shares(neurons: dict[str, NeuronPlan], stages: dict[str, str]) -> dict[str, dict[str, float]]:
    """Share of the states of each width, by stage in the order of the network."""
    total: dict[str, dict[int, int]] = {}
    for name, n in neurons.items():
        widths = total.setdefault(stages[name], {})
        for b in n.bits:
            widths[b] = widths.get(b, 0) + n.elements
    return {s: {str(b): w[b] / sum(w.values()) for b in sorted(w)} for s, w in total.items()}


def panels(data: AllocationData) -> list[Panel]:
    """The ranking where there is one, and the composition of the stages."""
    return [p for p in (ranking(data), composition(data)) if p is not None]


def ranking(data: AllocationData) -> Panel | None:
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


def slices(found: list[AllocationRow]) -> list[Row]:
    """Each row as wide as the ranks up to the next one, as not every channel has a row."""
    ranks = [r.get("rank", i + 1) for i, r in enumerate(found)]
    overlap = 0.3 if len(ranks) > MANY else 0.0  # no light between thin bars
    ends = [r + overlap for r in (*ranks[1:], ranks[-1] + 1)]
    return [
        {
            "neuron": r["neuron"], "channel": r["channel"], "score": r["score"], "bits": str(r["bits"]),
            "rank": rank, "end": end,
        }
        for r, rank, end in zip(found, ranks, ends, strict=True)
    ]  # fmt: skip


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


def composition(data: AllocationData) -> Panel | None:
    rows: list[Row] = [
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


def text(data: AllocationData) -> list[str]:
    rows = data["rows"]
    if not rows:
        return [NOTHING]
    lines = [
        f"beta {data['beta']:g}, P{data['percentile']:g}: {data['average_bits']:.3f} bits on average",
        "rank    score  bits",
    ]
    top = max(r["score"] for r in rows) or 1.0
    for r in rows[:: max(1, len(rows) // RANKS)]:
        lines.append(f"{r['rank']:<6} {r['score']:.4f}  {r['bits']}  {bar(r['score'] / top, BAR)}")
    cells = [
        [stage, *(f"{100 * shares.get(b, 0.0):.1f}" for b in ("2", "4", "8"))]
        for stage, shares in data["stages"].items()
    ]
    return [*lines, "", *table(("stage", "2-bit %", "4-bit %", "8-bit %"), cells, left=1)]


def look(report: Report) -> AllocationData | None:
    """Nothing to draw where all channels have the same bits."""
    found = report["figures"].get("allocation")
    if found is None or not (found["rows"] or found.get("stages")):
        return None
    return None if found["by"] == "uniform" else found


def absent(report: Report) -> str:
    how = allocated_by(report)
    return f"there is no ranking, as the allocation is {how}; quantize with --recipe paper+w4m4"


FIGURE = Figure(
    "allocation",
    "score ranking by bits; the bits in every stage",
    panels,
    text,
    Heading("allocation", "Bits", "Where the bits went"),
    look,
    absent=absent,
    columns=1,
)

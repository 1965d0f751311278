"""The paper's motivation: what states cost beside weights, against the batch size and the number of steps.

The paper's curves: weights of convolutions and linear layers ideally packed to 4 bits, all states at 32 or 4
bits; a step reads and writes every state once. `this` is the plan: packed, padded, with its metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptq4snn.cost.accounting import WORD, stream_bytes
from ptq4snn.cost.traffic import PlanCost, ideal_bytes, moved_words
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.panel import Panel, Row, Spec, axis_of_bytes, channel, colours
from ptq4snn.report.text import table
from ptq4snn.report.units import size
from ptq4snn.schema.figure_types import MembraneCostData, MembraneCostRow

if TYPE_CHECKING:
    from ptq4snn.discovery.discover import Discovery

__all__ = ["FIGURE", "data", "ideal_rows", "panels", "text"]

BATCHES, STEPS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)
NARROW, WIDE = 4, 32
MIB = 2**20
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


def data(discovery: Discovery, weights: int, plan: PlanCost | None = None) -> MembraneCostData:
    """weights: number of weights of all projections. plan: of a model that is quantized."""
    sizes = {n: i.layout.channels * i.layout.elements for n, i in discovery.neurons.items()}
    states = sum(sizes.values())
    carried = sum(sizes[n] for n, i in discovery.neurons.items() if i.carries_state)
    buffers, rows = stream_bytes(discovery), ideal_rows(weights, states)
    if plan is None:
        return {
            "weights": weights, "states": states, "carried_states": carried, "stream_bytes": buffers,
            "rows": rows,
        }  # fmt: skip
    packed = plan.resident.packed
    return {
        "weights": weights,
        "states": states,
        "carried_states": carried,
        "stream_bytes": buffers,
        "weight_bytes": packed.weights + packed.constants,
        "rows": [{**r, "this": _this(r, plan), "logical": _logical(r, plan)} for r in rows],
    }


def ideal_rows(weights: int, states: int) -> list[MembraneCostRow]:
    """The paper's curves."""
    w4, m32, m4 = (ideal_bytes(n, bits) for n, bits in ((weights, NARROW), (states, WIDE), (states, NARROW)))
    storage: list[MembraneCostRow] = [
        {"axis": "batch", "value": b, "weights": w4, "m32": w4 + b * m32, "m4": w4 + b * m4} for b in BATCHES
    ]
    volume: list[MembraneCostRow] = [
        {"axis": "T", "value": t, "weights": None, "m32": 2 * t * m32, "m4": 2 * t * m4} for t in STEPS
    ]
    return [*storage, *volume]


def _this(row: MembraneCostRow, plan: PlanCost) -> int:
    """Bytes of the plan at the row's batch size or T."""
    if row["axis"] == "batch":
        return plan.resident.packed.at(row["value"])
    return moved_words(plan.state, row["value"]) * WORD // 8


def _logical(row: MembraneCostRow, plan: PlanCost) -> int:
    """The same without padding, and for T without metadata."""
    if row["axis"] == "batch":
        return plan.resident.logical.at(row["value"])
    return 2 * row["value"] * plan.state.logical


def panels(data: MembraneCostData) -> list[Panel]:
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


def left_out(data: MembraneCostData) -> str:
    """The paper's curves count every neuron; a model need not keep the states of all of them."""
    gone = data["states"] - data["carried_states"]
    if not gone or "weight_bytes" not in data:
        return ""
    why = "where a neuron runs one step only, or its state is always zero"
    return f" This model keeps no state {why} ({gone:,} of {data['states']:,})."


def series(rows: list[MembraneCostRow], axis: str) -> list[Row]:
    """One row for each point of a line; the axes are logarithmic, and have no place for nothing."""
    return [
        {"value": r["value"], "series": title, "bytes": r[key], "size": size(r[key])}
        for key, title in SERIES.items()
        for r in map(Row, rows)
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


def text(data: MembraneCostData) -> list[str]:
    def part(axis: str, title: str) -> list[str]:
        names = {"m32": "M32 MiB", "m4": "M4 MiB", "this": "this plan MiB"}
        shown = [n for n in names if n in data["rows"][0]]  # a model that is not quantized has no plan
        rows = [
            [f"{r['value']}", *(f"{r[n] / MIB:.2f}" for n in shown)]
            for r in map(Row, data["rows"])
            if r["axis"] == axis
        ]
        return ["", title, *table((axis, *(names[n] for n in shown)), rows, left=1)]

    head = f"{data['weights']:,} weights at 4 bits, {data['states']:,} states a sample"
    return [
        head,
        *part("batch", "weights and resident states against the batch size"),
        *part("T", "states read and written against T, batch 1"),
    ]


FIGURE = Figure(
    "membrane-cost",
    "memory against batch size, state traffic against T",
    panels,
    text,
    Heading(
        "cost",
        "Cost",
        "What states cost",
        "Weights are stored once, states once for every sample, and they are moved in every time step.",
    ),
)

"""The page's tables: every cell as text for a person and as a value to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptq4snn.report.headline import score_of
from ptq4snn.report.units import NONE, change, percent, significant, size
from ptq4snn.schema.comparison_types import ComparisonData, MethodRow
from ptq4snn.schema.report_types import Evaluation, Neuron, Projection, Report

__all__ = ["Cell", "Table", "accuracy", "layers", "methods", "neurobench", "projections"]


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | str | None = None  # to sort by
    bits: Sequence[tuple[str, float]] = ()  # a bar of (width, per cent) before the text
    spoken: str = ""  # what the bar says


@dataclass(frozen=True)
class Table:
    """The first column heads its row. `filters` names columns whose values a select offers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1  # leading columns of words; the others are numbers
    filters: Sequence[int] = ()
    what: str = "rows"
    prose: bool = False  # the last column has sentences

    def choices(self, column: int) -> list[str]:
        """Different values, in the order in which they come."""
        return list(dict.fromkeys(row[column].text for row in self.rows))


def number(value: float | None, text: str) -> Cell:
    return Cell(NONE if value is None else text, value)


def layers(neurons: Sequence[Neuron]) -> Table:
    columns = (
        "Layer", "Kind", "Stage", "#", "States", "Bits", "k", "Saturated %", "Flipped %", "Rate before %",
        "Rate after %", "Silent",
    )  # fmt: skip
    rows = [layer(i, n) for i, n in enumerate(neurons, 1)]
    return Table("All layers with a membrane state", columns, rows, 3, (1, 2), "layers")


def layer(i: int, n: Neuron) -> list[Cell]:
    rate, k, silent = n["firing_rate"], n["k"], n["silent_channels"]
    states = n["channels"] * n["elements"]
    ends = [significant(k[end]) for end in ("min", "max")] if k else []
    exponents = " to ".join(dict.fromkeys(ends))
    quiet = (
        f"{silent['after']}"
        if silent["before"] == silent["after"]
        else f"{silent['before']} → {silent['after']}"
    )
    return [
        Cell(n["name"], n["name"]),
        Cell(n["kind"], n["kind"]),
        Cell(n.get("stage") or "", n.get("stage") or ""),
        Cell(f"{i}", i),
        Cell(f"{states:,}", states),
        widths(n),
        number(k["median"] if k else None, exponents),
        number(n["saturation"], f"{n['saturation'] or 0:.2f}"),
        shares(n["flip_rate"]),
        shares(rate["before"]),
        shares(rate["after"]),
        Cell(quiet, silent["after"]),
    ]


def shares(value: float | None) -> Cell:
    """A share from 0 to 1, shown in per cent."""
    return number(value, f"{100 * (value or 0):.2f}")


def widths(n: Neuron) -> Cell:
    """How many channels have which width."""
    counts = sorted((int(b), c) for b, c in n["bits"].items())
    total = sum(c for _, c in counts) or 1
    average = n.get("average_bits") or sum(b * c for b, c in counts) / total
    spoken = ", ".join(f"{c} channel{'s' if c > 1 else ''} of {b} bits" for b, c in counts)
    return Cell(f"{average:.2f}", average, [(str(b), 100 * c / total) for b, c in counts], spoken)


def projections(found: Sequence[Projection]) -> Table:
    columns = (
        "Projection", "Role", "Reads", "Bits", "Float bytes", "Bytes", "Synaptic operations before", "After",
        "Dead columns",
    )  # fmt: skip
    rows = [projection(p) for p in found]
    return Table("All projections", columns, rows, 3, (1, 2), "projections")


def projection(p: Projection) -> list[Cell]:
    w, ops = p["weight_bytes"], p["synops"] or {"before": None, "after": None}
    before, packed = w["float"] + w["biases"], w["quantized"] + w["scales"] + w["biases"]
    dead = p.get("dead_gptq_columns")
    return [
        Cell(p["name"], p["name"]),
        Cell(p["role"], p["role"]),
        Cell(p["reads"] or "", p["reads"] or ""),
        number(p["bits"], f"{p['bits']}"),
        Cell(size(before), before),
        Cell(size(packed), packed),
        number(ops["before"], significant(ops["before"])),
        number(ops["after"], significant(ops["after"])),
        number(dead, f"{dead}"),
    ]


def accuracy(report: Report) -> Table:
    """What `evaluate` measured, and the held-out samples, which need no labels."""
    s = report["summary"]
    rows = [evaluated(e) for e in report["evaluations"]]
    noise = s.get("noise_floor")
    floors = (NONE, NONE) if noise is None else (percent(noise["agreement"], 4), significant(noise["kl"]))
    unlabelled = {"agreement with float": percent(s["agreement"], 4), "KL to float": significant(s["kl"])}
    for (measure, value), floor in zip(unlabelled.items(), floors, strict=True):
        noted = measure if noise is None else f"{measure} (Float: after 0.01 % of weight noise)"
        texts = ("held-out samples", noted, f"{s['held_out']:,}", floor, value, NONE)
        rows.append([Cell(t) for t in texts])
    columns = ("Data", "Measure", "Samples", "Float", "Quantized", "Change")
    return Table("Accuracy and agreement", columns, rows, 2)


def evaluated(e: Evaluation) -> list[Cell]:
    metric, before, after = score_of(e)
    cells = [NONE if v is None else f"{v:.2f} %" for v in (before, after)]
    points = None if before is None or after is None else after - before
    return [Cell(t) for t in (e["data"], metric, f"{e['samples']:,}", *cells, change(points))]


def neurobench(report: Report) -> list[Table]:
    """Both networks in NeuroBench's terms; none of an older report."""
    if (found := report["summary"].get("neurobench")) is None:
        return []
    pair = (found["before"], found["after"])
    rows = [
        [Cell("footprint, without states"), *(Cell(size(n["footprint"]), n["footprint"]) for n in pair)],
        [Cell("connection sparsity"), *(sparsity(n["connection_sparsity"]) for n in pair)],
        [Cell("activation sparsity"), *(sparsity(n["activation_sparsity"]) for n in pair)],
        [Cell("effective MACs a sample"), *(operations(n["effective_macs"]) for n in pair)],
        [Cell("effective ACs a sample"), *(operations(n["effective_acs"]) for n in pair)],
        [Cell("dense operations a sample"), *(operations(n["dense"]) for n in pair)],
    ]
    return [Table("NeuroBench", ("Measure", "Float", "Quantized"), rows, 1)]


def sparsity(share: float | None) -> Cell:
    return number(share, f"{share or 0:.4f}")


def operations(count: float) -> Cell:
    return Cell(f"{count:,.0f}", count)


def methods(found: ComparisonData) -> Table:
    """The rows of a comparison."""
    metric = found["rows"][0]["metric"]
    columns = (
        "Method", f"{metric} %", "From float", "From baseline", "95 % interval", "Bits", "Saturated %",
        "Flipped %", "Agreement %",
    )  # fmt: skip
    return Table("Methods", columns, [method(r) for r in found["rows"]], 1)


def method(r: MethodRow) -> list[Cell]:
    spread = "" if r["spread"] is None else f" ± {r['spread']:.2f}"
    interval = r["interval_95"]
    between = "" if interval is None else f"{change(interval[0])} to {change(interval[1])}"
    return [
        Cell(r["method"], r["method"]),
        Cell(f"{r['score']:.2f}{spread}", r["score"]),
        Cell(change(r["change_from_float"]), r["change_from_float"]),
        Cell(change(r["change_from_baseline"]), r["change_from_baseline"]),
        number(None if interval is None else interval[0], between),
        number(r.get("average_bits"), significant(r.get("average_bits"))),
        number(r.get("saturation"), f"{r.get('saturation') or 0:.2f}"),
        shares(r.get("flip_rate")),
        shares(r.get("agreement")),
    ]

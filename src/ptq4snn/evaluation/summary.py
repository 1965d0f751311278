"""The report on one screen of plain text, at most 110 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from ptq4snn.plan import NeuronPlan, Plan

__all__ = ["render", "table"]

WIDTH = 110
WIDTHS = (2, 4, 8, 16, 32)
GAP = "  "


def render(plan: Plan, report: dict[str, Any]) -> str:
    """Header, totals, one line per neuron, warnings. Without a report, what the plan alone tells."""
    measured = {n["name"]: n for n in report.get("neurons", [])}
    parts = [[_header(plan)]]
    if report.get("summary"):
        parts.append(_totals(report["summary"]))
    parts.append(_neurons(plan, measured))
    notes = _notes(plan, report)
    if notes:
        parts.append(notes)
    return "\n\n".join("\n".join(lines) for lines in parts)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Aligned lines under a rule, `left` columns to the left, the others to the right.

    The first column gives way where the lines would become wider than WIDTH.
    """
    widths = [max(len(r[i]) for r in (titles, *rows)) for i in range(len(titles))]

    rest = sum(widths[1:]) + len(GAP) * len(widths[1:])
    widths[0] = min(widths[0], WIDTH - rest)

    def line(cells: Sequence[str]) -> str:
        placed = [shortened(c, w).ljust(w) for c, w in zip(cells[:left], widths, strict=False)]
        placed += [c.rjust(w) for c, w in zip(cells[left:], widths[left:], strict=True)]
        return GAP.join(placed).rstrip()

    return [line(titles), "-" * (widths[0] + rest), *map(line, rows)]


def shortened(text: str, width: int) -> str:
    """The end of a module path tells more than its beginning."""
    return text if len(text) <= width else f"..{text[len(text) - width + 2 :]}"


def _header(plan: Plan) -> str:
    r = plan.recipe
    weights = "float weights" if r["weights"] is None else f"W{r['weights']}"
    membrane = "M32" if r["coupling"] == "none" else f"M{r['membrane']:g}"
    chosen = "" if plan.beta is None else f" (beta {plan.beta:g}, P {plan.percentile:g})"
    text = f"{weights}/{membrane}  coupling {r['coupling']}  allocation {r['allocation']}{chosen}"
    return f"{text}  arithmetic {plan.arithmetic}  T = {plan.steps}"


def _number(value: float | None, pattern: str = "{:.3f}", factor: float = 1.0) -> str:
    return "-" if value is None else pattern.format(value * factor)


def size(count: float) -> str:
    """Bytes as a person reads them."""
    for unit, least in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= least:
            return f"{count / least:.3f} {unit}"
    return f"{count:g} B"


def _change(pair: dict[str, Any], show: str = "{:.4f}", factor: float = 1.0) -> str:
    return f"{_number(pair['before'], show, factor)} -> {_number(pair['after'], show, factor)}"


def _totals(s: dict[str, Any]) -> list[str]:
    """Two columns of label and value."""
    w, b = s["weight_bytes"], s["state_bytes"]
    beside = f"+ {size(b['metadata'])} metadata" if b["metadata"] else f"+ {size(b['shifts'])} shifts"
    energy = _number(s["state_energy"])
    if s["state_energy_with_shifts"] != s["state_energy"]:
        energy += f" ({_number(s['state_energy_with_shifts'])} with shifts)"
    silent = s["silent_channels"]
    left = [
        ("agreement with float", f"{_number(s['agreement'], '{:.2f} %', 100)} of {s['held_out']:,} held out"),
        ("KL to float", _number(s["kl"], "{:.5f}")),
        ("average bits", f"{s['average_bits']:.3f} (all states {s['average_bits_all']:.3f})"),
        ("saturated states", _number(s["saturation"], "{:.3f} %")),
        ("spike flips", _number(s["flip_rate"], "{:.3f} %", 100)),
        ("firing rate", _change(s["firing_rate"])),
        ("rates' earth mover", _number(s["emd"], "{:.5f}")),
    ]
    right = [
        ("weights", f"{size(w['float'])} -> {size(w['quantized'])}"),
        ("scales, biases", f"{size(w['scales'])}, {size(w['biases'])}"),
        ("state", f"{size(b['float'])} -> {size(b['packed'])}"),
        ("  logical", f"{size(b['logical'])} {beside}"),
        ("state energy / M32", energy),
        ("operations", f"{_change(s['energy_pj'], '{:.3f}', 1e-6)} uJ"),
        ("silent channels", f"{silent['before']} -> {silent['after']} of {s['channels']:,}"),
    ]
    if s["stream_bytes"]:
        right.append(("streams (int16)", size(s["stream_bytes"])))
    return [
        f"{a:<20} {x:<30} {b:<18} {y}".rstrip()
        for (a, x), (b, y) in zip_longest(left, right, fillvalue=("", ""))
    ]


def _neurons(plan: Plan, measured: dict[str, Any]) -> list[str]:
    """One line per neuron: how many channels have which width, their k, and what was measured."""
    used = [b for b in WIDTHS if any(b in n.bits for n in plan.neurons.values())]
    bits = [f"{b}b" for b in used]
    titles = ("neuron", "kind", "state", *bits, "k", "sat. %", "flips %", "firing rate")
    return table(titles, [_neuron(n, used, measured.get(n.name)) for n in plan.neurons.values()], left=3)


def _neuron(n: NeuronPlan, used: list[int], measured: dict[str, Any] | None) -> list[str]:
    shape = "x".join(map(str, n.layout.shape))
    k = [v for v in n.k if v is not None]
    exponents = "-" if not k else f"{min(k)}" if min(k) == max(k) else f"{min(k)}..{max(k)}"
    m = measured or {"saturation": None, "flip_rate": None}
    rates = _change(m["firing_rate"]) if measured else "-"
    counts = [str(n.bits.count(b) or ".") for b in used]
    return [
        n.name, n.kind, shape, *counts, exponents,
        _number(m["saturation"]), _number(m["flip_rate"], factor=100), rates,
    ]  # fmt: skip


def _notes(plan: Plan, report: dict[str, Any]) -> list[str]:
    notes = []
    stateless = [n.name for n in plan.neurons.values() if not n.carries_state]
    if stateless:
        notes.append(f"carries no state: {', '.join(stateless)}")
    readouts = [n.name for n in plan.neurons.values() if n.readout]
    if readouts:
        notes.append(f"read out without a threshold, 16 bits: {', '.join(readouts)}")
    worst = max(plan.neurons.values(), key=lambda n: n.leak_error)
    if worst.leak_error:
        notes.append(f"the leak is not dyadic: off by up to {worst.leak_error:.2g} at {worst.name}")
    silent = report.get("silent") or {"before": None, "lost": []}
    if silent["before"]:
        notes.append(f"WARNING: silent in the float network already, first at {silent['before']}")
    if silent["lost"]:
        notes.append(f"WARNING: silent after quantization, first at {silent['lost'][0]}; give it more bits")
    return [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in notes]

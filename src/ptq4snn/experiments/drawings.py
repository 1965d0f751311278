"""The paper's figures as plain text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ptq4snn.report.text import bar, sparkline, table

__all__ = ["DRAWINGS"]

BAR = 40
RANKS = 20  # parts of a ranking that are shown
MIB = 2**20
NOTHING = "there is no channel inside the budget"

Data = dict[str, Any]


def membrane_cost(data: Data) -> list[str]:
    def part(axis: str, title: str) -> list[str]:
        names = {"m32": "M32 MiB", "m4": "M4 MiB", "this": "this plan MiB"}
        shown = [n for n in names if n in data["rows"][0]]  # a model that is not quantized has no plan
        rows = [
            [f"{r['value']}", *(f"{r[n] / MIB:.2f}" for n in shown)]
            for r in data["rows"]
            if r["axis"] == axis
        ]
        return ["", title, *table((axis, *(names[n] for n in shown)), rows, left=1)]

    head = f"{data['weights']:,} weights at 4 bits, {data['states']:,} states a sample"
    return [
        head,
        *part("batch", "weights and resident states against the batch size"),
        *part("T", "states read and written against T, batch 1"),
    ]


def distributions(data: Data) -> list[str]:
    """The pair in the middle of the network; the file has all of them."""
    if not data["rows"]:
        return ["there is no pair of a projection and a neuron inside the budget"]
    names = list(dict.fromkeys(r["neuron"] for r in data["rows"]))
    name = names[len(names) // 2]
    lines = [f"{name}, one of {len(names)} pairs; values in theta"]
    for r in data["rows"]:
        if r["neuron"] == name:
            lines += [
                f"channel {r['channel']} ({r['which']}): k {r['k']}, {r['bits']} bits; "
                f"{100 * r['outside']:.2f} % of the states beyond the grid",
                f"  weights {histogram(r['weights'])}",
                f"  states  {histogram(r['states'])}",
            ]
    return lines


def histogram(bins: Data) -> str:
    edges = bins["edges"]
    return f"{edges[0]:+.3f} [{sparkline(bins['counts'])}] {edges[-1]:+.3f}"


def bridge_analysis(data: Data) -> list[str]:
    if not data["rows"]:
        return [NOTHING]
    ks = {int(k): n for k, n in data["k"].items()}
    total = sum(ks.values()) or 1
    lines = ["k      channels", *(f"{k:<4} {n:>6}  {bar(n / total, BAR)}" for k, n in ks.items())]
    if data["median_ratio"] is not None:
        lines.append(
            f"bridged over observer scale: median {data['median_ratio']:.3f}; "
            f"{100 * data['within_factor_2']:.1f} % within a factor of 2"
        )
    return lines


def allocation(data: Data) -> list[str]:
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


DRAWINGS: Mapping[str, Callable[[Data], list[str]]] = {
    "membrane-cost": membrane_cost,
    "distributions": distributions,
    "bridge-analysis": bridge_analysis,
    "allocation": allocation,
}

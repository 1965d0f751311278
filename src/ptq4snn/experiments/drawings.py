"""The paper's figures as plain text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptq4snn.evaluation.summary import table

__all__ = ["DRAWINGS"]

BAR = 40
LEVELS = " .:-=+*#%@"
RANKS = 20  # parts of a ranking that are shown
MIB = 2**20

Data = dict[str, Any]


def bar(share: float) -> str:
    return "#" * round(BAR * share)


def strip(counts: Sequence[float]) -> str:
    """A histogram in one line."""
    top = max(counts, default=0) or 1
    return "".join(LEVELS[min(len(LEVELS) - 1, round((len(LEVELS) - 1) * c / top))] for c in counts)


def membrane_cost(data: Data) -> list[str]:
    def part(axis: str, title: str) -> list[str]:
        rows = [
            [f"{r['value']}", f"{r['m32'] / MIB:.2f}", f"{r['m4'] / MIB:.2f}"]
            for r in data["rows"]
            if r["axis"] == axis
        ]
        return ["", title, *table((axis, "M32 MiB", "M4 MiB"), rows, left=1)]

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
            edges = r["weights"]["edges"]
            lines += [
                f"channel {r['channel']} ({r['which']}): k {r['k']}, {r['bits']} bits",
                f"  weights {edges[0]:+.3f} [{strip(r['weights']['counts'])}] {edges[-1]:+.3f}",
                f"  states  {states_strip(r['states'])}",
            ]
    return lines


def states_strip(states: Data, bins: int = 32) -> str:
    """The logarithmic bins of the statistics, drawn on a linear axis."""
    middles = [(a + b) / 2 for a, b in zip(states["inner"], states["outer"], strict=True)]
    low, high = min(middles, default=0.0), max(middles, default=0.0)
    counts = [0.0] * bins
    for middle, n in zip(middles, states["counts"], strict=True):
        counts[min(bins - 1, int(bins * (middle - low) / ((high - low) or 1.0)))] += n
    return f"{low:+.3f} [{strip(counts)}] {high:+.3f}"


def bridge_analysis(data: Data) -> list[str]:
    ks = {int(k): n for k, n in data["k"].items()}
    total = sum(ks.values()) or 1
    lines = ["k      channels", *(f"{k:<4} {n:>6}  {bar(n / total)}" for k, n in ks.items())]
    ratios = sorted(r["bridged"] / r["observer"] for r in data["rows"] if r["observer"] > 0)
    if ratios:
        near = sum(0.5 <= r <= 2 for r in ratios) / len(ratios)
        middle = ratios[len(ratios) // 2]
        lines.append(
            f"bridged over observer scale: median {middle:.3f}; {100 * near:.1f} % within a factor of 2"
        )
    return lines


def allocation(data: Data) -> list[str]:
    rows = data["rows"]
    if not rows:
        return ["there is no channel inside the budget"]
    lines = [
        f"beta {data['beta']:g}, P{data['percentile']:g}: {data['average_bits']:.3f} bits on average",
        "rank    score  bits",
    ]
    top = max(r["score"] for r in rows) or 1.0
    for i in range(0, len(rows), max(1, len(rows) // RANKS)):
        r = rows[i]
        lines.append(f"{i + 1:<6} {r['score']:.4f}  {r['bits']}  {bar(r['score'] / top)}")
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

"""Weights and float states of single channels on one axis, with the levels that both may take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.report.figure import Figure, Heading
from ptq4snn.report.figures.common import evenly
from ptq4snn.report.panel import Panel, Row, Spec, channel, colours
from ptq4snn.report.text import sparkline
from ptq4snn.report.units import percent, significant
from ptq4snn.schema.figure_types import Bins, DistributionRow, DistributionsData
from ptq4snn.schema.report_types import Report

__all__ = ["FIGURE", "Channel", "Pair", "data", "middle", "neurons_of", "panels", "text"]

Which = Literal["narrow", "middle", "wide"]
PAIRS = 24
WEIGHT_BINS, STATE_BINS = 32, 48
SHARES: dict[Which, float] = {"narrow": 0.1, "middle": 0.5, "wide": 0.9}  # channels by their range of states
ENDS = (0.001, 0.999)  # quantiles of the states that must be seen
WIDEST = 2.5  # axis over states: shows the whole grid of states on one side of zero, but never mostly grid
LEVELS, WEIGHT_LEVELS = "levels of the state", "levels of the weights"
TOKENS = {"weights": "weights", "float states": "before", LEVELS: "after", WEIGHT_LEVELS: "weights"}
STRIPS = {LEVELS: (-0.14, -0.03), WEIGHT_LEVELS: (-0.28, -0.17)}  # where they stand under the histograms
LABELS = "datum.label == 'weights' ? 'weights, and their levels' : datum.label"
MOST_BITS = 8  # of levels that are drawn; a stranger's report may say any number
THETA = 1.0


class Channel(Protocol):
    """One channel of a pair in the float network; in theta."""

    @property
    def source(self) -> int:
        """Which row of the projection's weight feeds it."""

    @property
    def per_weight(self) -> float:
        """What a weight of 1 adds."""

    @property
    def largest_weight(self) -> float: ...

    def weights(self, bins: int) -> Bins: ...

    def quantiles(self, shares: Sequence[float]) -> Sequence[float]:
        """Of the states."""

    def states(self, low: float, high: float, bins: int) -> Bins: ...

    def outside(self, low: float, high: float) -> float:
        """Share of the states."""


@dataclass(frozen=True)
class Pair:
    """A neuron and the only projection that feeds it."""

    projection: str
    theta: Sequence[float]  # the unit, for each channel
    reach: Sequence[float]  # the largest |state| of each channel, in theta
    channel: Callable[[int], Channel]


def data(plan: Plan, names: Sequence[str], pair: Callable[[str], Pair]) -> DistributionsData | None:
    """names: the pairs inside the budget; None where there is none."""
    chosen = [names[i] for i in evenly(len(names), PAIRS)]
    rows = [r for n in chosen for r in _of_pair(plan, plan.neurons[n], pair(n))]
    return {"units": "theta", "rows": rows} if rows else None


def _of_pair(plan: Plan, n: NeuronPlan, pair: Pair) -> list[DistributionRow]:
    """Three channels of one neuron."""
    order = sorted(range(len(pair.reach)), key=pair.reach.__getitem__)
    w = plan.projections[pair.projection]
    rows: list[DistributionRow] = []
    for which, share in SHARES.items():
        c = order[int(share * (len(order) - 1))]
        found, step = pair.channel(c), n.scales[c] / pair.theta[c]
        half = 2 ** (n.bits[c] - 1)
        low, high = step * (n.zero[c] - half), step * (n.zero[c] + half - 1)
        rows.append(
            {
                "neuron": n.name, "channel": c, "which": which, "bits": n.bits[c], "zero": n.zero[c],
                "k": n.k[c], "scale": step, "weight_bits": w.bits, "weight_odd": w.odd,
                "weight_scale": None if w.bits is None else w.scales[found.source] * found.per_weight,
                "weights": found.weights(WEIGHT_BINS),
                "states": found.states(*_axis(found, low, high), STATE_BINS),
                "outside": found.outside(low - step / 2, high + step / 2),
                "largest_weight": found.largest_weight, "largest_state": pair.reach[c],
            }
        )  # fmt: skip
    return rows


def _axis(found: Channel, low: float, high: float) -> tuple[float, float]:
    """From where to where: the grid from low to high, where it leaves the states room enough."""
    least, most = found.quantiles(ENDS)
    a, b = min(least, low), max(most, high)
    return (least, most) if b - a > WIDEST * (most - least) > 0 else (a, b)


def neurons_of(data: DistributionsData) -> list[str]:
    """Neurons with data, in the order of the network."""
    return list(dict.fromkeys(r["neuron"] for r in data["rows"]))


def middle(data: DistributionsData) -> str:
    """The one that is shown where none is asked for."""
    names = neurons_of(data)
    return names[len(names) // 2]


def panels(data: DistributionsData, neurons: Sequence[str] = ()) -> list[Panel]:
    """A narrow, a middle and a wide channel of each neuron."""
    known = neurons_of(data)
    for name in neurons:
        if name not in known:
            raise PTQ4SNNError(f"there are no distributions of {name!r}: this run has {', '.join(known)}")
    chosen = neurons or [middle(data)]
    several = len(chosen) > 1
    return [one(r, several) for name in chosen for r in data["rows"] if r["neuron"] == name]


def one(r: DistributionRow, several: bool) -> Panel:
    title = f"{r['which'].capitalize()} channel" + (f" of {r['neuron']}" if several else "")
    k = "" if r["k"] is None else f", k = {significant(r['k'])}"
    description = (
        f"{r['neuron']}, channel {r['channel']}: states reach {significant(r['largest_state'])} θ, weights "
        f"{significant(r['largest_weight'])} θ; {r['bits']} bits{k}, a level every "
        f"{significant(r['scale'])} θ; {percent(r['outside'])} of the float states lie beyond the levels."
    )
    rows = [*outline(r["weights"], "weights"), *outline(r["states"], "float states")]
    rows += levels(r, LEVELS, r["scale"], r["bits"], r["zero"])
    rows += levels(r, WEIGHT_LEVELS, r["weight_scale"], r["weight_bits"], odd=r.get("weight_odd", False))
    columns = {"what": "of", "x": "from θ", "share": "share of the largest bin"}
    return Panel(title, description, drawing(), rows, columns, height=170, width=190)


def outline(histogram: Bins, what: str) -> list[Row]:
    """Steps of a histogram over its largest bin, closed at both ends."""
    edges, counts = merged(histogram["edges"], histogram["counts"])
    top = max(counts, default=0) or 1
    steps = [{"what": what, "x": x, "share": n / top} for x, n in zip(edges, counts, strict=False)]
    return [{"what": what, "x": edges[0], "share": 0}, *steps, {"what": what, "x": edges[-1], "share": 0}]


def merged(edges: list[float], counts: list[float]) -> tuple[list[float], list[float]]:
    """Wider bins where there are few values, so that a shape is seen and not each value."""
    while len(counts) > 2 * math.sqrt(sum(counts)) and len(counts) > 8 and len(counts) % 2 == 0:
        edges, counts = edges[::2], [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
    return edges, counts


def levels(
    r: DistributionRow, what: str, scale: float | None, bits: int | None, zero: int = 0, odd: bool = False
) -> list[Row]:
    """scale * (zero + i), or odd multiples of the scale, as far as there are states or weights."""
    if scale is None or bits is None or not 0 < bits <= MOST_BITS:
        return []
    half = 2 ** (bits - 1)
    values = [scale * (2 * i + 1 if odd else zero + i) for i in range(-half, half)]
    edges = [*r["states"]["edges"], *r["weights"]["edges"]]
    low, high = min(edges), max(edges)
    slack = 1e-6 * (high - low)  # a level on the edge belongs to it
    return [{"what": what, "x": v, "share": None} for v in values if low - slack <= v <= high + slack]


def drawing() -> Spec:
    """The histograms above strips of levels."""
    x = channel("x", "value, in thresholds θ", axis={"grid": False, "tickCount": 4})
    named = [what for what in TOKENS if what != WEIGHT_LEVELS]  # of the weights' colour, and below them
    colour = colours(
        "what", TOKENS, legend={"symbolType": "square", "values": named, "labelExpr": LABELS}, sort=[*TOKENS]
    )
    scale = {"domain": [-0.3, 1.0], "nice": False}
    hidden: Spec = {"scale": scale, "axis": None}
    return {
        "encoding": {"x": x},
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.share)"}],
                "mark": {
                    "type": "area", "interpolate": "step-after", "fillOpacity": 0.35,
                    "line": {"strokeWidth": 1}, "aria": False,
                },
                "encoding": {"y": channel("share", stack=None, **hidden), "color": colour},
            },
            *(
                {
                    "transform": [{"filter": f"datum.what == '{what}'"}],
                    "mark": {"type": "rule", "strokeWidth": 1, "aria": False},
                    "encoding": {"y": {"datum": low, **hidden}, "y2": {"datum": high}, "color": colour},
                }
                for what, (low, high) in STRIPS.items()
            ),
            {
                "transform": [
                    {"aggregate": [{"op": "max", "field": "x", "as": "reach"}]},
                    {"filter": f"datum.reach >= {THETA}"},
                ],
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": "@muted", "aria": False},
                "encoding": {"x": {"datum": THETA}, "y": {"datum": 0, **hidden}, "y2": {"datum": 1}},
            },
        ],
    }  # fmt: skip


def text(data: DistributionsData) -> list[str]:
    """The pair in the middle of the network; the file has all of them."""
    if not data["rows"]:
        return ["there is no pair of a projection and a neuron inside the budget"]
    name = middle(data)
    lines = [f"{name}, one of {len(neurons_of(data))} pairs; values in theta"]
    for r in data["rows"]:
        if r["neuron"] == name:
            lines += [
                f"channel {r['channel']} ({r['which']}): k {r['k']}, {r['bits']} bits; "
                f"{100 * r['outside']:.2f} % of the states beyond the grid",
                f"  weights {in_one_line(r['weights'])}",
                f"  states  {in_one_line(r['states'])}",
            ]
    return lines


def in_one_line(bins: Bins) -> str:
    edges = bins["edges"]
    return f"{edges[0]:+.3f} [{sparkline(bins['counts'])}] {edges[-1]:+.3f}"


def absent(report: Report) -> str:
    return "no neuron inside the budget is fed by a single projection"


FIGURE = Figure(
    "distributions",
    "weights and states of three channels, with the levels of the state",
    panels,
    text,
    Heading(
        "distributions",
        "Distributions",
        "Weights and states of single channels",
        "Float states beside the weights that feed them; below, what a stored state and weight can be.",
    ),
    absent=absent,
    columns=3,
    chooses=True,
    one_legend=True,
)

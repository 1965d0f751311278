"""The result of a comparison: its runs, and one row a method over all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ptq4snn.experiments.intervals import Interval, mean, paired, spread
from ptq4snn.experiments.methods import Method, baseline_of
from ptq4snn.experiments.scoring import unpack
from ptq4snn.schema.comparison_types import Average, Averages, ComparisonData, MethodRow, Run
from ptq4snn.schema.report_types import Summary

__all__ = ["Comparison", "Row"]

AVERAGED: tuple[Average, ...] = (
    "average_bits",
    "saturation",
    "flip_rate",
    "agreement",
    "kl",
    "emd",
)  # of a report's summary


@dataclass(frozen=True)
class Row:
    """A method over its seeds; scores in %, changes in points, flips and agreement as shares."""

    label: str
    spec: str
    seeds: tuple[int, ...]
    metric: str
    score: float
    spread: float | None  # standard deviation over seeds
    change: float  # from the float model
    baseline: str | None  # label of what it is compared with
    interval: Interval | None  # of the change from it; None for label maps, which are not paired
    baseline_change: float | None
    scores: dict[str, float | None]
    figures: Averages

    def to_dict(self) -> MethodRow:
        low_high = None if self.interval is None else [self.interval.low, self.interval.high]
        return {
            "method": self.label, "spec": self.spec, "seeds": list(self.seeds), "metric": self.metric,
            "score": self.score, "spread": self.spread, "change_from_float": self.change,
            "baseline": self.baseline, "change_from_baseline": self.baseline_change,
            "interval_95": low_high, "scores": self.scores, **self.figures,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """`runs` has one entry for each method and seed, `rows()` one for each method."""

    methods: list[Method]
    seeds: list[int]
    runs: list[Run]
    baseline: Method | None = None  # None: 32-bit states of the same rounding

    def of(self, method: Method) -> list[Run]:
        """The runs of a method, in the order of the seeds."""
        return [r for r in self.runs if r["label"] == method.label]

    def rows(self) -> list[Row]:
        base = self.of(self.methods[0])[0]["score"]  # parse_methods puts the float model first
        return [self._row(m, base) for m in self.methods]

    def _row(self, method: Method, base: float) -> Row:
        runs = self.of(method)
        against = baseline_of(method, self.methods, self.baseline)
        points = mean([r["score"] for r in runs])
        assert points is not None
        other = None if against is None else mean([r["score"] for r in self.of(against)])
        return Row(
            label=method.label,
            spec=method.spec,
            seeds=tuple(r["seed"] for r in runs if r["seed"] is not None),
            metric=runs[0]["metric"],
            score=points,
            spread=spread([r["score"] for r in runs]),
            change=points - base,
            baseline=None if against is None else against.label,
            interval=None if against is None else interval(runs, self.of(against)),
            baseline_change=None if other is None else points - other,
            scores={n: mean([r["scores"][n] for r in runs]) for n in runs[0]["scores"]},
            figures=averages(runs),
        )

    def to_dict(self) -> ComparisonData:
        return {"seeds": self.seeds, "rows": [r.to_dict() for r in self.rows()], "runs": self.runs}


def summary(run: Run) -> Summary:
    """The totals of a run's report; none of the float model."""
    return {} if run["report"] is None else run["report"]["summary"]


def averages(runs: Sequence[Run]) -> Averages:
    found = {n: mean([summary(r).get(n) for r in runs]) for n in AVERAGED}
    return cast(Averages, found)


def interval(runs: Sequence[Run], others: Sequence[Run]) -> Interval | None:
    """Paired over the test samples; a baseline without seeds stands for all of them."""
    others = list(others) * len(runs) if len(others) == 1 else others
    right, expected = (
        [unpack(r["right"], r["samples"]) for r in part if r["right"] is not None] for part in (runs, others)
    )
    whole = len(right) == len(runs) and len(expected) == len(others)
    return paired(right, expected) if whole else None

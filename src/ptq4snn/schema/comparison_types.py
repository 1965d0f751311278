"""What `ptq4snn compare` finds, and `experiment` for the paper's tables. Scores in %, changes in points."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ptq4snn.schema.report_types import Report
from ptq4snn.schema.score_types import Task

__all__ = [
    "Average",
    "Averages",
    "ComparisonData",
    "Made",
    "Measured",
    "MethodRow",
    "Run",
    "RunResult",
    "Seconds",
]


class Seconds(TypedDict):
    quantize: float
    evaluate: float


class Measured(TypedDict):
    """A model on the test samples."""

    task: Task
    metric: str  # the score's name
    score: float
    scores: dict[str, float | None]
    samples: int
    right: str | None  # a bit for each sample in hex digits; None: no classes
    seconds: Seconds


class Made(Measured):
    """What was made of a recipe; None of the float model."""

    recipe: dict[str, Any] | None
    report: Report | None  # without figures


class RunResult(Made):
    """What is stored of a method and a seed."""

    seed: int | None  # None: the float model draws nothing
    date: str
    version: str


class Run(RunResult):
    label: str
    spec: str  # as the user wrote it


Average = Literal["average_bits", "saturation", "flip_rate", "agreement", "kl", "emd"]


class Averages(TypedDict):
    """Means over the seeds, of the reports' summaries; None of the float model."""

    average_bits: float | None
    saturation: float | None
    flip_rate: float | None
    agreement: float | None
    kl: float | None
    emd: float | None


class MethodRow(Averages):
    """A method over its seeds."""

    method: str
    spec: str
    seeds: list[int]
    metric: str
    score: float
    spread: float | None
    change_from_float: float
    baseline: str | None
    change_from_baseline: float | None
    interval_95: list[float] | None
    scores: dict[str, float | None]


class ComparisonData(TypedDict):
    seeds: list[int]
    rows: list[MethodRow]
    runs: list[Run]

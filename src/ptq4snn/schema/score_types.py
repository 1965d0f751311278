"""What `evaluate` measures of a model on labelled data."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["Limited", "Metrics", "Paired", "Result", "Scores", "Task", "Throughput"]

Task = Literal["classification", "segmentation"]


class Metrics(TypedDict, total=False):
    """Of a classification the first two, of a segmentation the others.

    In %; None where nothing was labelled, and for a class that does not occur.
    """

    accuracy: float | None
    accuracy_top5: float | None
    classes: int | None  # None: no map was seen
    pixels: int  # that were labelled
    aAcc: float | None
    mIoU: float | None
    mAcc: float | None
    class_iou: list[float | None]
    class_accuracy: list[float | None]


class Scores(Metrics):
    task: Task


class Throughput(TypedDict):
    samples_per_second: float  # of everything, reading the data included
    model_samples_per_second: float  # of the model's forward alone


class Result(Scores):
    """One evaluation."""

    samples: int
    throughput: Throughput


class Limited(Result, total=False):
    """As the command line tells it."""

    limit: int  # of samples, where one was given


class Paired(Result):
    """As a comparison needs it."""

    right: str | None  # a bit for each sample in hex digits: decided right; None: no classes

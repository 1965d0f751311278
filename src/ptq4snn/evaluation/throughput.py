"""Samples per second: of the model's forward alone, and of everything, reading the data included."""

from __future__ import annotations

from time import perf_counter

from ptq4snn.schema.score_types import Throughput

__all__ = ["Stopwatch", "together"]


class Stopwatch:
    """Runs from batch to batch. The first batch warms up and is only counted where there is no other."""

    def __init__(self) -> None:
        self.batches = self.samples = 0
        self.forward = 0.0  # seconds inside the model
        self.begin = self.end = perf_counter()

    def lap(self, samples: int, forward: float) -> None:
        """A batch of `samples` is done; the model took `forward` seconds for it."""
        if self.batches == 1:
            self.samples, self.forward, self.begin = 0, 0.0, self.end
        self.batches += 1
        self.samples += samples
        self.forward += forward
        self.end = perf_counter()

    def result(self) -> Throughput:
        tick = 1e-9  # a clock that did not move
        return {
            "samples_per_second": self.samples / max(self.end - self.begin, tick),
            "model_samples_per_second": self.samples / max(self.forward, tick),
        }


def together(a: Throughput, b: Throughput) -> Throughput:
    """Of two processes at the same time."""
    return {
        "samples_per_second": a["samples_per_second"] + b["samples_per_second"],
        "model_samples_per_second": a["model_samples_per_second"] + b["model_samples_per_second"],
    }

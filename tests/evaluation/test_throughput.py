"""The stopwatch, on a clock that the test sets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ptq4snn.evaluation import throughput
from ptq4snn.evaluation.throughput import Stopwatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """now[0] is the time."""
    now = [100.0]
    monkeypatch.setattr(throughput, "perf_counter", lambda: now[0])
    return now


def test_the_first_batch_is_a_warm_up(clock: list[float]) -> None:
    watch = Stopwatch()
    for seconds, samples, forward in ((50.0, 10, 40.0), (2.0, 8, 1.0), (3.0, 2, 1.5)):
        clock[0] += seconds
        watch.lap(samples, forward)
    assert watch.result() == {"samples_per_second": 10 / 5.0, "model_samples_per_second": 10 / 2.5}


def test_a_single_batch_is_counted(clock: list[float]) -> None:
    watch = Stopwatch()
    clock[0] += 4.0
    watch.lap(10, 2.0)
    assert watch.result() == {"samples_per_second": 2.5, "model_samples_per_second": 5.0}


def test_a_clock_that_stands_still(clock: list[float]) -> None:
    watch = Stopwatch()
    watch.lap(3, 0.0)
    assert all(0 < v < math.inf for v in dict[str, Any](watch.result()).values())

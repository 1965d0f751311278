"""benchmarks/soak.py, small: no drift, many sessions, many threads."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ptq4snn.runtime import State

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The parts of the benchmark, its bundle and the simulation."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        streams, crowd = (import_module(f"soak_parts.{name}") for name in ("streams", "crowd"))
        bundle = tmp_path_factory.mktemp("soak") / "net.ptq"
        simulation = import_module("soak_parts.network").make(bundle)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return streams, crowd, bundle, simulation


def test_streams_that_are_moved_do_not_drift(soaked: Any) -> None:
    streams, _, bundle, simulation = soaked
    seen = streams.streaming(bundle, simulation, 1500, seed=3)
    assert seen.wrong == 0 and seen.in_memory > 10 and seen.by_numpy == 200 and seen.simulated == 512
    assert streams.slope([(0, 5), (10, 25), (20, 45)]) == 2.0


def test_a_difference_would_be_seen(soaked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    streams, _, bundle, simulation = soaked
    monkeypatch.setattr(
        streams.Restless, "move", lambda self, quiet: self.now.restore(State.new(quiet.model, 1))
    )
    assert streams.streaming(bundle, simulation, 60).wrong > 20


def test_sessions_and_threads_on_one_model(soaked: Any) -> None:
    _, crowd, bundle, _ = soaked
    assert crowd.sessions(bundle, 50, 5)["wrong"] == 0
    shared = crowd.sharing(bundle, 4, 15)
    assert shared["wrong"] == 0 and not shared["errors"]

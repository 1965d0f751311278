"""Streams that go on: saved and restored at random, beside one that never was; memory on the way."""

from __future__ import annotations

import os
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptq4snn.runtime import Runtime, State, load
from ptq4snn.runtime.native import available
from soak_parts.network import frames

__all__ = ["Soaked", "resident", "same", "same_state", "slope", "streaming"]

IN_MEMORY, IN_FILE = 1 / 50, 1 / 1000  # chances of a step to be followed by a restore
WINDOW, EVERY = 100, 1000  # steps that NumPy runs beside, of so many
SAMPLES = 200  # of the memory
SIMULATED = 512  # first steps, in the simulation as well


@dataclass
class Soaked:
    """What happened on the way; `wrong` counts steps whose bits were not the same."""

    steps: int = 0
    in_memory: int = 0
    in_file: int = 0
    by_numpy: int = 0
    simulated: int = 0
    wrong: int = 0
    kernels: list[str] = field(default_factory=list)
    resident: list[tuple[int, int]] = field(default_factory=list)  # step, bytes

    def summary(self) -> dict[str, Any]:
        out = asdict(self)
        memory = out.pop("resident")
        later = memory[len(memory) // 4 :]
        out["resident_first"], out["resident_last"] = later[0][1], later[-1][1]
        out["bytes_a_thousand_steps"] = round(1000 * slope(later), 1)
        return out


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope(points: list[tuple[int, int]]) -> float:
    """Of the straight line nearest to the points."""
    x, y = np.array(points, dtype=np.float64).T
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / max(1.0, (x * x).sum()))


def same(a: Any, b: Any) -> bool:
    """Outputs, bit for bit."""
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)


def same_state(a: State | None, b: State | None) -> bool:
    assert a is not None and b is not None
    parts = ((a.rows, b.rows), (a.sums, b.sums))
    return a.steps == b.steps and all(np.array_equal(x[v], y[v]) for x, y in parts for v in x)


class Restless:
    """A session that moves from runtime to runtime, each of other kernels, through memory and files."""

    def __init__(self, bundle: Path, r: random.Random, seen: Soaked) -> None:
        seen.kernels = [*available(), "numpy"]
        self._runtimes = [load(bundle, kernels) for kernels in available() or ("numpy",)]
        self._file, self._r, self._seen, self.now = bundle.with_suffix(".state"), r, seen, self._runtimes[0]

    def move(self, quiet: Runtime) -> None:
        """Sometimes: on to another runtime, compared with the session that stays."""
        chance = self._r.random()
        if chance >= IN_MEMORY + IN_FILE:
            return
        state = self.now.state
        assert state is not None
        self._seen.wrong += not same_state(state, quiet.state)
        if chance < IN_FILE:
            state.save(self._file)
            state = State.load(self._file, quiet.model)
            self._seen.in_file += 1
        else:
            self._seen.in_memory += 1
        self.now.reset()
        self.now = self._r.choice(self._runtimes)
        self.now.restore(state)


def streaming(bundle: Path, simulation: Any, steps: int, seed: int = 0) -> Soaked:
    """So many steps of a session that is moved at random and of one that is not; NumPy beside in windows that
    begin from the quiet one's state, the simulation beside from rest."""
    r, pool, seen = random.Random(seed), frames(seed), Soaked()
    quiet, beside, restless = load(bundle), load(bundle, "numpy"), Restless(bundle, r, seen)
    first: list[tuple[Any, Any]] = []
    for t in range(steps):
        x = pool[r.randrange(len(pool))]
        if t % EVERY == 0 and t:
            state = quiet.state
            assert state is not None
            beside.restore(state)
        y = quiet.step(x)
        seen.wrong += not same(restless.now.step(x), y)
        if t % EVERY < WINDOW:
            seen.wrong += not same(beside.step(x), y)
            seen.by_numpy += 1
        if t < SIMULATED:
            first.append((x, y))
        restless.move(quiet)
        if t % max(1, steps // SAMPLES) == 0:
            seen.resident.append((t, resident()))
    seen.steps = steps
    seen.wrong += not same_state(restless.now.state, quiet.state)
    seen.simulated, wrong = _simulated(simulation, first)
    seen.wrong += wrong
    return seen


def _simulated(simulation: Any, first: list[tuple[Any, Any]]) -> tuple[int, int]:
    """Steps that the simulation ran as one sequence, and how many of them gave other bits."""
    x: NDArray[Any] = np.stack([frame for frame, _ in first])
    with torch.no_grad():
        each, mean = (y.numpy() for y in simulation(torch.from_numpy(x)))
    wrong = sum(not same(y[0], each[t]) for t, (_, y) in enumerate(first))
    return len(first), wrong + (not same(first[-1][1][1], mean))

"""The values of a random program while it is made, and which of them an operation may read."""

from __future__ import annotations

from math import prod
from typing import Any

from runtime.draws import Draws

from ptq4snn.network.program import Clip, Value
from ptq4snn.runtime.parameters import Mirror, NeuronNumbers, ProjectionNumbers

SMALL, LARGE = 2**9, 2**22  # what products and sums may read
Area = tuple[int, ...]  # sizes of the axes that positions run over


class Values(Draws):
    """`peak` is a rough upper bound of every value, kept far below int32."""

    def __init__(self, seed: int, work: int) -> None:
        super().__init__(seed)
        self.work = work
        self.values: list[Value] = []
        self.operations: list[Any] = []
        self.area: list[Area] = []
        self.peak: list[float] = []
        self.summed: list[bool] = []  # behind a sum over time
        self.projections: dict[str, ProjectionNumbers] = {}
        self.neurons: dict[str, NeuronNumbers] = {}
        self.mirrors: dict[str, Mirror] = {}
        self.heads: set[int] = set()  # made by a projection that nothing but an output may read
        self.source: dict[int, tuple[str, str]] = {}  # value: kind and name of its output
        self.steps = int(self.rng.integers(1, 5))
        self.timed = self.one(True, False)

    def add(self, area: Area, channels: int, time: bool, peak: float, summed: bool) -> int:
        self.values.append(Value(prod(area), channels, time))
        self.area.append(area)
        self.peak.append(peak)
        self.summed.append(summed)
        return len(self.values) - 1

    def like(self, v: int, peak: float, *others: int) -> int:
        """A value of the same size as v, with time where one of them has."""
        time = any(self.values[i].time for i in (v, *others))
        summed = any(self.summed[i] for i in (v, *others))
        return self.add(self.area[v], self.values[v].channels, time, peak, summed)

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.operations)}"

    def below(self, v: int, limit: int) -> int:
        """v, clipped if it may be larger."""
        if self.peak[v] <= limit:
            return v
        low, high = -self.between(0, limit), self.between(1, limit)
        out = self.like(v, limit)
        self.operations.append(Clip(out, (v,), self.name("clip"), low, high))
        return out

    def pick(self, summed: bool = False) -> int:
        """A value that operations may read, a recent one rather than an old one."""
        able = [v for v in range(len(self.values)) if v not in self.heads and self.summed[v] == summed]
        return self.one(*able[-3:]) if self.one(True, True, False) else self.one(*able)

    def partner(self, v: int) -> int | None:
        """Another value of the same size, or of one position."""
        mine = self.values[v]
        able = [
            i
            for i, x in enumerate(self.values)
            if i not in self.heads
            and self.summed[i] == self.summed[v]
            and x.channels == mine.channels
            and x.positions in (1, mine.positions)
        ]
        return self.one(*able) if able else None

"""Recorded currents of some trajectories of a neuron, with the spikes that the float network fired there.

A trajectory is one position of one sample over all time steps. Enough of them tell what a width, a scale or a
threshold does to the spikes, without running the network again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.frameworks.core import NeuronCore
from ptq4snn.memory import Portion, Room, Undo
from ptq4snn.modules.readout import same_draws
from ptq4snn.network.state_layout import Layout

__all__ = ["SAMPLES", "Trace", "Tracer", "record_traces"]

SAMPLES = 64
TRAJECTORIES = 1024  # of every channel, where memory allows
VALUES = 2**22  # currents that one neuron may hold

Current = Callable[[Tensor], Tensor]  # the input of a core as a real current, gain included


@dataclass(frozen=True)
class Trace:
    """n trajectories of each of C channels over T steps."""

    currents: Tensor  # [T, C, n] float32
    spikes: Tensor  # [T, C, n] uint8, of the float network: 0 or 1, or how many
    places: Tensor  # [C, n] int64: index of the element in its sample's state


@dataclass
class Tracer:
    """A probe that keeps the currents and spikes of some positions."""

    layout: Layout
    current: Current
    steps: int
    samples: int
    rows: list[list[tuple[Tensor, Tensor]]] = field(default_factory=list)  # [batch][t]
    places: list[Tensor] = field(default_factory=list)
    seen: int = 0
    of_rows: Current | None = None  # `current` of what was picked [C, n], where it can be told from that

    def __call__(self, x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
        if t == 0 or not self.rows:
            self.rows.append([])
            self.places.append(self._choose(s))
        index = self.places[-1]  # [B, n]
        if self.of_rows is None:
            rows = self._take(self.current(x).float(), index)
        else:
            rows = self.of_rows(self._take(x, index)).float()
        self.rows[-1].append((rows, self._take(s, index).to(torch.uint8)))

    def mark(self) -> tuple[int, int]:
        """Where it is, for `rewind` and `join`."""
        return len(self.rows), self.seen

    def rewind(self, mark: tuple[int, int]) -> None:
        """As it was: the batch that came since has failed."""
        (count, self.seen) = mark
        del self.rows[count:], self.places[count:]

    def join(self, mark: tuple[int, int]) -> None:
        """What came since, portions of one batch, becomes that batch."""
        count, _ = mark
        steps = zip(*self.rows[count:], strict=True)  # each of all portions
        self.rows[count:] = [[_side_by_side(step) for step in steps]]
        self.places[count:] = [torch.cat(self.places[count:])]

    def _choose(self, s: Tensor) -> Tensor:
        """Positions [B, n] of a batch: spread over the map, others in every sample, the same always."""
        positions = s[0].numel() // self.layout.channels
        most = min(TRAJECTORIES, VALUES // max(1, self.steps * self.layout.channels))
        n = max(1, min(positions, -(-most // self.samples)))
        first = torch.arange(self.seen, self.seen + len(s), device=s.device)[:, None] * 7
        self.seen += len(s)
        spread = torch.arange(n, device=s.device) * positions // n
        return (first + spread) % positions

    def _take(self, x: Tensor, index: Tensor) -> Tensor:
        """[C, B * n] of a state-like x [B, ...]."""
        rows = self.layout.by_channel(x)  # [B, C, P]
        picked = rows.gather(2, index[:, None].expand(-1, rows.shape[1], -1))
        return picked.transpose(0, 1).flatten(1).cpu()

    def trace(self) -> Trace:
        steps = sorted(len(r) for r in self.rows)[(len(self.rows) - 1) // 2]  # recordings may differ
        kept = [i for i, r in enumerate(self.rows) if len(r) >= steps]
        currents, spikes = (
            torch.cat([torch.stack([step[i] for step in self.rows[k][:steps]]) for k in kept], 2)
            for i in (0, 1)
        )
        flat = torch.arange(prod(self.layout.shape)).reshape(self.layout.shape)
        by_channel = self.layout.by_channel(flat.unsqueeze(0))[0]  # [C, P]: index of each element
        index = torch.cat([self.places[k].cpu().flatten() for k in kept])
        return Trace(currents, spikes, by_channel[:, index])


def _side_by_side(step: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Currents and spikes [C, n] of several portions."""
    return torch.cat([x for x, _ in step], 1), torch.cat([s for _, s in step], 1)


def record_traces(
    model: nn.Module,
    cores: Mapping[str, NeuronCore],
    tracers: Mapping[str, Tracer],
    batches: Iterable[Tensor],
    room: Room | None = None,
) -> dict[str, Trace]:
    """Run `model` over the batches with a tracer on each of the cores."""
    room = room or Room()
    try:
        for name, tracer in tracers.items():
            cores[name].probe = tracer
        for x in batches:
            begin = {n: t.mark() for n, t in tracers.items()}
            parts = room.run(x, partial(_traced, model, tracers), "tracing", partial(_mark, tracers))
            for n, tracer in tracers.items() if len(parts) > 1 else ():
                tracer.join(begin[n])
    finally:
        for name in tracers:
            cores[name].probe = None
        reset_neurons(model)
    return {name: tracer.trace() for name, tracer in tracers.items()}


def _traced(model: nn.Module, tracers: Mapping[str, Tracer], portion: Portion) -> None:
    before = {n: t.seen for n, t in tracers.items()}
    reset_neurons(model)
    with torch.no_grad(), same_draws():
        model(portion.x)
    for name, tracer in tracers.items():
        portion.check_rows(tracer.seen - before[name], name)


def _mark(tracers: Mapping[str, Tracer]) -> Undo:
    marks = {n: t.mark() for n, t in tracers.items()}

    def undo() -> None:
        for name, tracer in tracers.items():
            tracer.rewind(marks[name])

    return undo

"""What `prepare` made of a model: folded, observed, with the samples that were kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ptq4snn.calibration.calibration_set import sizes
from ptq4snn.calibration.packed import PackedBatch
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.folding import Folded
from ptq4snn.memory import Portion, Room
from ptq4snn.modules.output_ends import unfinished
from ptq4snn.modules.readout import Readout, mean_divergence, same_draws
from ptq4snn.modules.running import fastest
from ptq4snn.observation.observe import Observation
from ptq4snn.observation.reliability import Sensitivity
from ptq4snn.observation.traces import Trace
from ptq4snn.progress import Progress
from ptq4snn.team import SOLO, Team

if TYPE_CHECKING:
    from ptq4snn.rounding.store import Rounded

__all__ = ["Cache", "Prepared", "join"]


@dataclass
class Cache:
    """What one recipe had to compute on a prepared model, and the next may use: nothing in it changes a
    result."""

    logits: list[Tensor] = field(default_factory=list)  # of the float model, on the samples that choose
    reported: list[Tensor] = field(default_factory=list)  # the same, on those that report
    jittered: list[Tensor] = field(default_factory=list)  # the same, with jittered weights
    noise: tuple[float, float] | None = None  # KL and agreement of those
    footprint: int | None = None  # bytes of the float network (evaluation/neurobench.py)
    traces: dict[str, Trace] = field(default_factory=dict)  # of the float network
    sensitivities: dict[str, Sensitivity] = field(default_factory=dict)  # by reference recipe
    rounded: dict[str, Rounded] = field(default_factory=dict)  # by method, settings and scales


@dataclass(frozen=True)
class Prepared:
    """A model folded and observed, and the samples that were kept.

    Whatever is chosen is chosen on `held_out`; what is reported is measured on `reported`.
    `work` is a folder where rounding leaves its finished units, so that it can go on after an interruption.
    """

    model: nn.Module
    folded: Folded
    seen: Observation
    readout: Readout
    batch_axis: int
    held_out: Sequence[Tensor]
    kept: Sequence[Tensor]
    samples: int
    progress: Progress
    excluded: tuple[str, ...] = ()  # modules that stay float by the recipe
    packed: Sequence[PackedBatch] = ()  # all samples that are not held out, if kept
    reporting: Sequence[Tensor] = ()  # held out as well, and seen by no choice; empty: too few samples
    work: Path | None = None
    team: Team = SOLO  # processes that share the work
    room: Room = field(default_factory=Room, compare=False)  # how many samples run at once
    cache: Cache = field(default_factory=Cache, repr=False, compare=False)

    def with_work(self, folder: str | Path | None) -> Prepared:
        """With another folder for finished units, or none."""
        return replace(self, work=None if folder is None else Path(folder))

    @property
    def reported(self) -> Sequence[Tensor]:
        """What the report measures: samples that chose nothing, if there are any."""
        return self.reporting or self.held_out

    @property
    def sample(self) -> Tensor:
        """A micro-batch that nothing was chosen by, if there is one."""
        return self.reported[0]

    def float_logits(self) -> list[Tensor]:
        """Logits of the float model on the samples that choose."""
        if not self.cache.logits:
            self.cache.logits = self.logits_of_float(self.held_out)
        return self.cache.logits

    def logits(self, model: nn.Module, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Of each batch, in order; each is run by one of the team."""
        run = fastest(model)

        def portion(part: Portion) -> Tensor:
            reset_neurons(model)
            with torch.no_grad(), same_draws(), unfinished(model):
                return self.readout(run(part.x))

        def one(x: Tensor) -> Tensor:
            return torch.cat(self.room.run(x, portion, "running the network"))

        if self.team.size == 1:
            yield from map(one, batches)
        else:
            yield from self.team.map(one, batches, "outputs")
        reset_neurons(model)

    def logits_of_float(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Of the float model as it is now, in batches as `join` makes them. It runs on micro-batches: unlike
        the packed runtime, torch is no faster on larger ones."""
        found = self.logits(self.folded.model, batches)
        return [torch.cat([next(found) for _ in part]) for part in parts(batches, self.batch_axis)]

    def reported_logits(self) -> list[Tensor]:
        """Logits of the float model on the samples that report."""
        if not self.reporting:
            return self.float_logits()
        if not self.cache.reported:
            self.cache.reported = self.logits_of_float(self.reporting)
        return self.cache.reported

    def note_reported(self, found: Iterable[Tensor]) -> None:
        """Logits of the float model on the samples that report, which were computed on the way."""
        joined: list[Tensor] = []
        left = iter(found)
        for part in parts(self.reporting, self.batch_axis):
            wanted = sum(x.shape[self.batch_axis] for x in part)
            here: list[Tensor] = []
            while sum(len(x) for x in here) < wanted:
                here.append(next(left))
            joined.append(torch.cat(here))
        self.cache.reported = joined

    def divergence(self, model: nn.Module) -> tuple[float, float]:
        """Mean KL to the float model and share of equal decisions on the samples that choose."""
        found = self.logits(model, join(self.held_out, self.batch_axis))
        return mean_divergence(zip(self.float_logits(), found, strict=True))

    def samples_again(self, count: int | None = None) -> Iterator[Tensor]:
        """The observed micro-batches once more, or the first `count`; if the rest was not kept, those that
        were."""
        if not self.packed:
            yield from self.kept[:count]
        for batch in self.packed[:count]:
            yield batch.unpack()


def join(batches: Sequence[Tensor], batch_axis: int, count: int = 4) -> list[Tensor]:
    """Batches of up to `count` micro-batches of one length: no integer depends on the batch, and the runtime
    is faster on large ones."""
    return [torch.cat(part, batch_axis) for part in parts(batches, batch_axis, count)]


def parts(batches: Sequence[Tensor], batch_axis: int, count: int = 4) -> list[list[Tensor]]:
    """What `join` puts together."""
    found: list[list[Tensor]] = []
    for x in batches:
        fits = found and len(found[-1]) < count and sizes(x, batch_axis) == sizes(found[-1][0], batch_axis)
        if fits:
            found[-1].append(x)
        else:
            found.append([x])
    return found

"""Accuracy, or segmentation scores, of a float or quantized model over labelled batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.calibration.calibration_set import check
from ptq4snn.data.samples import whole_labels
from ptq4snn.discovery.batch_axis import check_batch_axis
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.input_types import input_type
from ptq4snn.errors import DataError, PTQ4SNNError, first_line
from ptq4snn.evaluation.accuracy import Accuracy
from ptq4snn.evaluation.own_batches import own_batches
from ptq4snn.evaluation.segmentation_score import Segmentation
from ptq4snn.evaluation.throughput import Stopwatch, together
from ptq4snn.forms import batches_in, inputs_and_labels
from ptq4snn.frameworks import adapter_of
from ptq4snn.memory import Portion, Room, in_words, ran_out
from ptq4snn.modules.readout import Readout, find_readout
from ptq4snn.modules.running import fastest, whole_sequences
from ptq4snn.network.program import Program
from ptq4snn.progress import Progress, chosen
from ptq4snn.schema.score_types import Result, Task, Throughput
from ptq4snn.team import SOLO, Team

__all__ = ["evaluate"]

BATCH = 256
IMAGE_AXES = 4  # from here on the last two axes are height and width
Watch = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class Scoring:
    """Which samples are scored and how; the words are those of `evaluate`."""

    batch_axis: int
    task: Task | None
    limit: int | None
    watch: Watch | None
    team: Team = SOLO


def evaluate(
    model: nn.Module,
    batches: Iterable[Any],
    batch_axis: int = 0,
    progress: Progress | bool | None = None,
    task: Task | None = None,
    limit: int | None = None,
    watch: Watch | None = None,
    team: Team = SOLO,
) -> Result:
    """How well the model does on batches (x, y): scores in %, number of samples, samples per second.

    labels y [B]: accuracy and accuracy_top5. Label maps y [B, H, W]: aAcc, mIoU, mAcc, and both per class;
    `batches.samples.classes` is their number of classes if it is there, else the number of outputs.
    Batches without labels give no score. Images of another batch may have another height and width.
    task: "classification" or "segmentation"; without it the labels tell.
    limit: only the first samples, at most so many.
    progress: None shows a bar if stderr is a terminal, False nothing; or an object of your own.
    watch: called with the logits [B, classes, ...] and the labels of every labelled batch (by a team not for
        label maps).
    team: processes that share the batches (ptq4snn.team); each of them gets the whole result.
    """
    if task not in (None, "classification", "segmentation"):
        raise PTQ4SNNError(f"there is no task {task!r}: give classification or segmentation")
    if limit is not None and limit < 1:
        raise PTQ4SNNError(f"limit is {limit}: evaluate at least one sample")
    batches = batches_in(batches, batch_axis, size=BATCH)
    training = [m for m in model.modules() if m.training]
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]), whole_sequences(model), in_words("to evaluate"):
            return _evaluate(model, batches, Scoring(batch_axis, task, limit, watch, team), chosen(progress))
    finally:
        reset_neurons(model)
        for m in training:
            m.training = True


def _evaluate(model: nn.Module, batches: Iterable[Any], scoring: Scoring, progress: Progress) -> Result:
    with scoring.team.raised_in_all("scores"):
        part = _own_part(model, batches, scoring, progress)
    parts = scoring.team.all(part, "scores")
    whole = parts[0]
    for other in parts[1:]:
        whole = whole.merged(other)
    if scoring.watch is not None:
        for number in sorted(whole.watched):
            scoring.watch(*whole.watched[number])
    if whole.samples == 0:
        raise DataError("no samples to evaluate; give at least one batch")
    return {"samples": whole.samples, **(whole.score or Accuracy()).result(), "throughput": whole.speed}


@dataclass(frozen=True)
class Part:
    """What one process has found; all of them together are the whole."""

    samples: int
    score: Accuracy | Segmentation | None
    speed: Throughput
    watched: dict[int, tuple[Tensor, Tensor]]  # of a team: logits and labels by the batch's number

    def merged(self, other: Part) -> Part:
        score = self.score
        if score is None:
            score = other.score
        elif other.score is not None:
            score.merge(other.score)  # type: ignore[arg-type]
        speed = together(self.speed, other.speed)
        return Part(self.samples + other.samples, score, speed, self.watched | other.watched)


def _own_part(model: nn.Module, batches: Iterable[Any], scoring: Scoring, progress: Progress) -> Part:
    """Of the batches that are this process's."""
    batch_axis = scoring.batch_axis
    first: Tensor | None = None
    kind = torch.float32
    readout: Readout | None = None
    score = None if scoring.task is None else _score(scoring.task, batches)
    samples, clock, room = 0, Stopwatch(), Room(batch_axis)
    watched: dict[int, tuple[Tensor, Tensor]] = {}
    numbered, size = own_batches(batches, scoring.limit, batch_axis, scoring.team)
    for number, (before, batch) in progress.track(numbered, size, "evaluating"):
        x, y = _split(batch, first, batch_axis, before)
        if first is None:
            _check_axis(model, x, batch_axis)
            kind = input_type(model, x.narrow(batch_axis, 0, 1).to(_device(model, x)))
        first, x = x if first is None else first, x.to(kind)
        readout, logits, seconds = _logits(model, x, readout, room)
        samples += x.shape[batch_axis]
        if y is not None:
            score = score or _score("classification" if y.dim() == 1 else "segmentation", batches)
            score.add(x, logits, y.cpu())
            if scoring.watch is not None and scoring.team.size == 1:
                scoring.watch(logits, y.cpu())
            elif scoring.watch is not None and y.dim() == 1:
                watched[number] = (logits, y.cpu())
        clock.lap(x.shape[batch_axis], seconds)
    return Part(samples, score, clock.result(), watched)


def _score(task: Task, batches: Iterable[Any]) -> Accuracy | Segmentation:
    if task == "classification":
        return Accuracy()
    return Segmentation(getattr(getattr(batches, "samples", None), "classes", None))


def _split(batch: Any, first: Tensor | None, batch_axis: int, before: int) -> tuple[Tensor, Tensor | None]:
    """Inputs and labels of a batch behind so many samples, checked against each other."""
    x, y = inputs_and_labels(batch)
    check(x, None, batch_axis, before)
    if first is not None and _differ(_fixed(x, batch_axis), _fixed(first, batch_axis)):
        raise DataError(
            f"a batch of shape {list(x.shape)} came after one of shape {list(first.shape)}: "
            "only the number of samples and of time steps, and height and width of images, may differ"
        )
    if y is None:
        return x, None
    if y.dim() not in (1, 3) or len(y) != x.shape[batch_axis]:
        axes = [a for a in (0, 1) if a < x.dim() and y.dim() and a != batch_axis and len(y) == x.shape[a]]
        axis = f", or batch_axis={axes[0]} if the samples lie there" if axes else ""
        raise DataError(
            f"{x.shape[batch_axis]} samples came with labels of shape {list(y.shape)}: "
            f"give one class number each, or one map [H, W] each{axis}"
        )
    return x, whole_labels(y)


def _differ(a: list[int], b: list[int]) -> bool:
    """In more than one axis, which may be that of time."""
    return len(a) != len(b) or sum(m != n for m, n in zip(a, b, strict=True)) > 1


def _check_axis(model: nn.Module, x: Tensor, batch_axis: int) -> None:
    """Time is never taken for samples, also where there happen to be as many labels as steps."""
    program = getattr(model, "program", None)
    if isinstance(program, Program):
        if program.input.batch_axis != batch_axis:
            own = program.input.batch_axis
            raise DataError(f"the model takes its samples on axis {own} of a batch: give batch_axis={own}")
        return
    names = [name for name, m in model.named_modules() if adapter_of(m) is not None]
    check_batch_axis(model, names, x.to(_device(model, x)), batch_axis)


def _fixed(x: Tensor, batch_axis: int) -> list[int]:
    """The sizes that all batches share."""
    shape = list(x.shape if x.dim() < IMAGE_AXES else x.shape[:-2])
    return shape[:batch_axis] + shape[batch_axis + 1 :]


def _device(model: nn.Module, x: Tensor) -> torch.device:
    return next((t.device for t in [*model.parameters(), *model.buffers()]), x.device)


def _logits(
    model: nn.Module, x: Tensor, readout: Readout | None, room: Room
) -> tuple[Readout, Tensor, float]:
    """Where the logits are, the logits, and the seconds that the model took."""
    x = x.to(_device(model, x))
    try:
        where = readout or find_readout(model, x, room.axis)

        def run(portion: Portion) -> Tensor:
            reset_neurons(model)
            with torch.no_grad():
                return where(fastest(model)(portion.x)).cpu()  # waits for the device, too

        begin = perf_counter()
        logits = torch.cat(room.run(x, run, "evaluating"))
        return where, logits, perf_counter() - begin
    except (RuntimeError, ValueError, TypeError, IndexError) as why:
        if ran_out(why):
            raise
        raise DataError(
            f"the model cannot run on a batch of shape {list(x.shape)} and type {x.dtype}: "
            f"{first_line(why)}; check the input and batch_axis"
        ) from why

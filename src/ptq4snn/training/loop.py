"""Train a model by a recipe. The same seed gives the same weights, killed and resumed or not.

for stage:  for epoch:  order = permutation(seed, stage, epoch)
                        for step:  x, y = augment(batch of order; seed, stage, step)
                                   step of the optimizer at learning_rate(step)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ptq4snn.checkpoint import load_checkpoint
from ptq4snn.data.samples import VOID, SampleBatches, Samples, check_labels, whole_labels
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError, RecipeError, first_line
from ptq4snn.numerics.gradients import safe_gradients
from ptq4snn.progress import Progress, Silent
from ptq4snn.team import SOLO, Team
from ptq4snn.training.augment import augment
from ptq4snn.training.losses import class_weights, loss
from ptq4snn.training.parts import gradients_in_parts
from ptq4snn.training.pupil import Pupil
from ptq4snn.training.rates import firing_rates, steps_seen
from ptq4snn.training.resume import Place, load_place, run_identity, save_place
from ptq4snn.training.schedule import learning_rate
from ptq4snn.training.training_recipe import Stage, TrainingRecipe

__all__ = ["Conduct", "Trainer", "train"]

SAVE_SECONDS = 60.0

Make = Callable[[int | None], nn.Module]  # the model at T steps, None: its own


@dataclass(frozen=True)
class Conduct:
    """How a run is carried out, whatever is trained, and who hears of it."""

    workers: int = 0  # processes that read samples
    compiled: bool = False  # by torch.compile
    progress: Progress = field(default_factory=Silent)
    report: Callable[[dict[str, Any]], None] = lambda epoch: None  # called behind every epoch
    team: Team = SOLO  # processes that share the parts of every batch


def train(
    recipe: TrainingRecipe,
    make: Make,
    samples: Samples,
    out: Path,
    conduct: Conduct | None = None,
) -> tuple[nn.Module, Place]:
    """The trained model, and what was measured on the way; goes on where a run in `out` was killed."""
    if len(samples) - recipe.validation < recipe.batch_size:
        raise DataError(
            f"{len(samples)} training samples are too few for batches of {recipe.batch_size} "
            f"besides {recipe.validation} for validation: lower batch_size or validation"
        )
    processes = SOLO.size if conduct is None else conduct.team.size
    if processes > recipe.parts:
        raise RecipeError(
            f"{processes} processes cannot share batches of parts = {recipe.parts}: set parts in the recipe "
            f"to {processes} or more"
        )
    with torch.random.fork_rng(devices=[]):
        check_first_batch(recipe, make, samples)
        trainer = Trainer(recipe, make, samples, out, conduct or Conduct())
        try:
            return trainer.run(), trainer.place
        except torch._dynamo.exc.TorchDynamoException as e:
            raise RecipeError(f"the model cannot be compiled ({first_line(e)}): leave --compile away") from e


class Trainer:
    def __init__(
        self,
        recipe: TrainingRecipe,
        make: Make,
        samples: Samples,
        out: Path,
        conduct: Conduct,
    ) -> None:
        self.recipe, self.make, self.samples, self.out = recipe, make, samples, out
        self.conduct = conduct
        shuffled = self.draw("split").permutation(len(samples))
        self.held_out, self.training = np.split(shuffled, [recipe.validation])
        self.held_out.sort()
        self.per_epoch = len(self.training) // recipe.batch_size
        self.identity = run_identity(recipe, self.model(None, None), samples, out)
        self.place = Place()
        self.weights: Tensor | None = None

    def draw(self, *key: object) -> np.random.Generator:
        """Random numbers that depend on the seed and the key alone."""
        return np.random.default_rng([self.recipe.seed, *(ord(c) for c in repr(key))])

    def total(self, stage: Stage) -> int:
        """Steps of a stage."""
        return max(1, round(stage.epochs * self.per_epoch))

    def run(self) -> nn.Module:
        saved = self.conduct.team.told(partial(load_place, self.out, self.identity), "where to go on")
        state: dict[str, Tensor] | None = None
        inside: dict[str, Any] = {}
        if saved is not None:
            self.place, inside = saved
            state = inside.pop("model")
        elif self.recipe.start:
            first = self.model(None, None)
            load_checkpoint(first, self.recipe.start, self.recipe.anew)
            state = first.state_dict()
        if self.recipe.class_weights:
            ys = (y for _, y in SampleBatches(self.samples, 16, self.conduct.workers, self.training.tolist()))
            with torch.no_grad():
                outputs = self.make(None).eval()(self.samples[[0]][0]).shape[1]
            self.weights = class_weights(ys, outputs)
        for i in range(self.place.stage, len(self.recipe.stages)):
            stage = self.recipe.stages[i]
            model = self.model(1 if stage.kind == "rate" else stage.steps, state)
            self.stage(i, model, inside)
            state, inside = model.state_dict(), {}
        return self.model(self.recipe.stages[-1].steps, state).eval()

    def model(self, steps: int | None, state: dict[str, Tensor] | None) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        model = self.make(steps)
        for m in model.modules():
            if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) and m.weight is not None:
                nn.init.constant_(m.weight, self.recipe.norm_gain)
        if state is not None:
            model.load_state_dict(state)
        for p in model.parameters():
            if p.dim() == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
        return model

    def stage(self, number: int, model: nn.Module, inside: dict[str, Any]) -> None:
        """One stage, from where a run was killed `inside` of it: with its optimizer and average."""
        stage = self.recipe.stages[number]
        rates = stage.kind == "rate"
        with firing_rates(model, self.steps(stage)) if rates else nullcontext():
            pupil = Pupil.of(model, self.recipe, self.conduct.compiled)
            if inside:
                pupil.go_on(inside)
            while self.place.step < self.total(stage):
                self.epoch(number, stage, pupil)
            pupil.average.exchange()
        self.place.stage, self.place.step = number + 1, 0
        self.save(Pupil.of(model, self.recipe))

    def epoch(self, number: int, stage: Stage, pupil: Pupil) -> None:
        place, total = self.place, self.total(stage)
        epoch, done = divmod(place.step, self.per_epoch)
        steps = min(self.per_epoch, total - epoch * self.per_epoch)  # the last epoch may be a part of one
        pupil.model.train()
        began, saved = time.monotonic(), time.monotonic()
        title = (
            f"stage {number + 1}/{len(self.recipe.stages)} {stage.kind}, epoch {epoch + 1}/{stage.epochs:g}"
        )
        batches = self.batches(number, epoch, done, steps)
        for x, y in self.conduct.progress.track(batches, steps - done, title):
            lr = learning_rate(place.step, total, stage.learning_rate, stage.warmup)
            g = torch.Generator().manual_seed(int(self.draw("step", number, place.step).integers(2**62)))
            x, y = augment(x, y, self.recipe.augmentation, self.recipe.margin, g)
            for group in pupil.optimizer.param_groups:
                group["lr"] = lr
            place.loss += self.step(pupil, (folded(x, stage), y), int(g.initial_seed()))
            pupil.average.update(place.step)
            place.step += 1
            if time.monotonic() - saved > SAVE_SECONDS and place.step % self.per_epoch:
                place.seconds += time.monotonic() - began
                began = saved = time.monotonic()
                self.save(pupil)
        place.seconds += time.monotonic() - began
        with pupil.average.watched():
            self.close_epoch(number, stage, epoch, pupil.model, steps)
        self.save(pupil)

    def steps(self, stage: Stage) -> dict[str, int]:
        """Steps of every neuron of the spiking network that a rate stage stands for."""
        return steps_seen(self.make(stage.steps), self.samples[[0]][0])

    def step(self, pupil: Pupil, batch: tuple[Tensor, Tensor], seed: int) -> float:
        """One step of the optimizer; the loss."""

        def error(x: Tensor, y: Tensor) -> Tensor:
            half = self.recipe.precision == "bfloat16"
            with safe_gradients(), torch.autocast("cpu", torch.bfloat16, enabled=half):
                logits = pupil.forward(x)
            return loss(logits.float(), y, self.recipe.label_smoothing, self.weights)

        pupil.optimizer.zero_grad(set_to_none=True)
        found = gradients_in_parts(pupil.model, error, batch, self.recipe.parts, seed, self.conduct.team)
        if not isfinite(found):
            where = f"step {self.place.step + 1} of stage {self.place.stage + 1}"
            raise DataError(
                f"the loss is {found} at {where}: look for NaN in the samples, or lower the learning rate"
            )
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(
                (p for g in pupil.optimizer.param_groups for p in g["params"]), self.recipe.clip
            )
        pupil.optimizer.step()
        return found

    def batches(self, number: int, epoch: int, done: int, steps: int) -> Iterable[tuple[Tensor, Tensor]]:
        """What is left of the epoch; the last, smaller batch is left out."""
        size = self.recipe.batch_size
        order = self.draw("order", number, epoch).permutation(self.training)[done * size : steps * size]
        return SampleBatches(self.samples, size, self.conduct.workers, order.tolist())

    def close_epoch(self, number: int, stage: Stage, epoch: int, model: nn.Module, steps: int) -> None:
        place = self.place
        entry = {
            "stage": number + 1,
            "kind": stage.kind,
            "epoch": epoch + 1,
            "epochs": stage.epochs,
            "loss": place.loss / steps,
            "validation": self.validate(model, stage),
            "seconds": place.seconds,
        }
        place.loss = 0.0
        place.log.append(entry)
        self.conduct.report(entry)

    def validate(self, model: nn.Module, stage: Stage) -> float | None:
        """Share in % of held-out samples (or their pixels) that are right."""
        if len(self.held_out) == 0:
            return None
        model.eval()
        hits = count = 0
        with torch.no_grad():
            for x, y in SampleBatches(self.samples, self.recipe.batch_size, 0, self.held_out.tolist()):
                reset_neurons(model)
                h, c = correct(model(folded(x, stage)), y)
                hits, count = hits + h, count + c
        return 100.0 * hits / max(count, 1)

    def save(self, pupil: Pupil) -> None:
        if self.conduct.team.leads:
            save_place(self.out, self.place, pupil.states(), self.identity)


def folded(x: Tensor, stage: Stage) -> Tensor:
    """The input of a stage: images as they are, recordings [B, T, C, H, W] as their mean in a rate stage."""
    if x.dim() == 5:
        return x.mean(1, keepdim=True) if stage.kind == "rate" else x
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def check_first_batch(recipe: TrainingRecipe, make: Make, samples: Samples) -> None:
    """Raise before the long work if the model cannot run on the samples, or has no output for a label."""
    x, y = samples[[0, 1]]
    if recipe.augmentation != "none" and x.dim() < 4:
        raise RecipeError(
            f'samples of shape {list(x.shape[1:])} have no rows and columns: augmentation "none"'
        )
    try:
        with torch.no_grad():
            logits = make(None).eval()(x)
    except (RuntimeError, ValueError, TypeError, IndexError) as e:
        raise DataError(f"the model cannot run on samples of shape {list(x.shape[1:])}: {e}") from e
    loss(logits, y, 0.0)


def correct(logits: Tensor, y: Tensor) -> tuple[int, int]:
    if y.dim() == 3:
        logits = nn.functional.interpolate(logits, y.shape[-2:], mode="bilinear", align_corners=False)
    y = whole_labels(y)
    check_labels(y, logits.shape[1])
    known = y != VOID if y.dim() == 3 else torch.ones_like(y, dtype=torch.bool)
    return int((logits.argmax(1) == y)[known].sum()), int(known.sum())

"""The last stage, if it is wanted: integers are moved end to end until the outputs are the float network's.

    L = mean KL( softmax(z_float / T) || softmax(z / T) )

over calibration samples, varied each time they are met (tuning/variation.py), without labels. T is the
temperature that held-out samples are judged at. What moves is in tuning/student.py: integers of weights,
biases and thresholds. Adam with a rate that falls to 0 by a cosine. A step needs 32 samples: one pass of the
float network and one of the quantized one, there and back.
"""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptq4snn.assemble import Assembly
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import OutputError
from ptq4snn.files import write_whole
from ptq4snn.hashing import digest
from ptq4snn.modules.output_ends import unfinished
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import divergences, same_draws, temperature
from ptq4snn.network.plan import Plan
from ptq4snn.numerics.gradients import safe_gradients
from ptq4snn.prepared import Prepared
from ptq4snn.rounding.stage import material_digest
from ptq4snn.stages import DISTILLING
from ptq4snn.tuning.student import Student
from ptq4snn.tuning.variation import has_maps, varied

__all__ = ["distil"]

BATCH = 32
RATES = (0.003, 0.0003, 0.0005)  # of weights in steps, biases in lengths of their rows, thresholds in shares
BETAS = (0.9, 0.99)
SAVED = 25  # steps, after which what was reached is kept


def distil(prepared: Prepared, assembly: Assembly, plan: Plan) -> tuple[Assembly, Plan] | None:
    """Assembly and plan with moved integers; None where that is not wanted or there is nothing to learn from.

    With a folder for work an interrupted run goes on from there and gives the same bits.
    """
    recipe = assembly.recipe
    if not recipe.distillation:
        return None
    expected = prepared.float_logits()
    if expected[0].dim() < 2 or expected[0].shape[1] < 2:
        warnings.warn(
            "distillation was left away: it compares the shares of classes, and the model has a single "
            "output, or decides by itself",
            stacklevel=4,
        )
        return None
    model = QuantizedModel(prepared.model, plan, assembly.integers())
    student = Student(assembly, plan, model)
    Lesson(prepared, student, temperature(expected), recipe.seed).run(recipe.distillation)
    made, found = student.assembled()
    return made, replace(found, beta=plan.beta, percentile=plan.percentile, mixed=plan.mixed)


class Lesson:
    """The steps of one student."""

    def __init__(self, prepared: Prepared, student: Student, warmth: float, seed: int) -> None:
        self.prepared, self.student, self.warmth, self.seed = prepared, student, warmth, seed
        rates = zip(student.numbers(), RATES, strict=True)
        groups = [{"params": numbers, "lr": rate, "first": rate} for numbers, rate in rates if numbers]
        self.optimizer = torch.optim.Adam(groups, betas=BETAS)
        self.maps = has_maps(prepared.folded)
        self.batches = len(prepared.packed) or len(prepared.kept)
        self.together = max(1, min(self.batches, BATCH // prepared.kept[0].shape[prepared.batch_axis]))

    def run(self, steps: int) -> None:
        """All steps, from the last that was kept on."""
        place = Place.of(self.prepared, self.student)
        kept = self.prepared.team.told(place.read, "distillation")
        first = place.load(kept, self.student, self.optimizer)
        for step in self.prepared.progress.track(range(first, steps), steps - first, DISTILLING):
            self.step(step, steps)
            if ((step + 1) % SAVED == 0 or step + 1 == steps) and self.prepared.team.leads:
                place.save(step + 1, self.student, self.optimizer)

    def step(self, step: int, steps: int) -> None:
        """One step of Adam; what it draws depends on its number and the seed alone."""
        generator = torch.Generator().manual_seed(_seed(self.seed, step))
        parts = [self._batch(i, generator) for i in self._drawn(step)]
        total = sum(x.shape[self.prepared.batch_axis] for x in parts)
        numbers = [x for group in self.student.numbers() for x in group]

        def gradients(x: Tensor) -> list[Tensor | None]:
            loss = self.divergence(x) * (x.shape[self.prepared.batch_axis] / total)
            return list(torch.autograd.grad(loss, numbers, allow_unused=True))

        found = self.prepared.team.map(gradients, parts, "distillation")  # added in their order
        for number, grads in zip(numbers, zip(*found, strict=True), strict=True):
            known = [g for g in grads if g is not None]
            number.grad = sum(known[1:], known[0]) if known else None
        for group in self.optimizer.param_groups:
            group["lr"] = group["first"] * (1 + math.cos(math.pi * step / steps)) / 2
        self.optimizer.step()
        self.student.clip()

    def divergence(self, x: Tensor) -> Tensor:
        """L of one batch, differentiable."""
        teacher, student, readout = self.prepared.folded.model, self.student, self.prepared.readout
        reset_neurons(teacher)
        with torch.no_grad(), same_draws(), unfinished(teacher):
            expected = readout(teacher(x))
        reset_neurons(teacher)
        student.model.reset_state()
        with torch.enable_grad(), same_draws(), safe_gradients(), unfinished(student.model):
            found = readout(student(x))
        student.model.reset_state()
        return divergences(expected, found, self.warmth).mean()

    def _drawn(self, step: int) -> list[int]:
        """Numbers of micro-batches: all are met once before one is met again, in a new order each time."""
        each = self.batches // self.together
        turn, place = divmod(step, each)
        order = torch.randperm(
            self.batches, generator=torch.Generator().manual_seed(_seed(self.seed, -1 - turn))
        )
        return order[place * self.together : (place + 1) * self.together].tolist()

    def _batch(self, number: int, generator: torch.Generator) -> Tensor:
        p = self.prepared
        x = p.packed[number].unpack() if p.packed else p.kept[number]
        return varied(x, p.batch_axis, generator) if self.maps else x


def _seed(seed: int, number: int) -> int:
    return int(digest(seed, number)[:15], 16)


@dataclass(frozen=True)
class Place:
    """Where a lesson is kept, for one student and one recipe; None: nowhere. A damaged file is not read."""

    path: Path | None

    @classmethod
    def of(cls, prepared: Prepared, student: Student) -> Place:
        if prepared.work is None:
            return cls(None)
        found = student.model.integers.items()
        integers = {n: [i.weight.long(), i.bias.long()] for n, i in found}  # there is one zero, not two
        states = {n: [p.theta, p.k, p.zero, p.bits] for n, p in student.plan.neurons.items()}
        wanted = digest(student.assembly.recipe.to_dict(), integers, states)
        return cls(prepared.work / f"{material_digest(prepared, wanted)[:32]}.distilling")

    def read(self) -> dict[str, Any] | None:
        """What was kept, if it can be read."""
        if self.path is None or not self.path.is_file():
            return None
        try:
            kept: dict[str, Any] = torch.load(self.path, weights_only=True)
        except Exception:  # arbitrary bytes make the parser raise anything
            return None
        return kept

    def load(self, kept: dict[str, Any] | None, student: Student, optimizer: torch.optim.Optimizer) -> int:
        """How many steps are done; the student is where it was then."""
        if kept is None:
            return 0
        try:
            step, numbers = int(kept["step"]), kept["numbers"]
            same = [[x.shape for x in group] for group in student.numbers()]
            if [[x.shape for x in group] for group in numbers] != same:
                return 0
            optimizer.load_state_dict(kept["optimizer"])
        except Exception:  # a dictionary of anything
            return 0
        with torch.no_grad():
            for mine, found in zip(student.numbers(), numbers, strict=True):
                for x, y in zip(mine, found, strict=True):
                    x.copy_(y)
        return step

    def save(self, step: int, student: Student, optimizer: torch.optim.Optimizer) -> None:
        if self.path is None:
            return
        numbers = [[x.detach() for x in group] for group in student.numbers()]
        content = io.BytesIO()
        torch.save({"step": step, "numbers": numbers, "optimizer": optimizer.state_dict()}, content)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, content.getvalue())
        except OSError as why:
            raise OutputError(
                f"the folder {self.path.parent} for unfinished work cannot be written to ({why.strerror}): "
                f"choose another"
            ) from why

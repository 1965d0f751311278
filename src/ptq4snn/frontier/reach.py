"""The search as a whole: deal the samples, observe once, try candidates, take the smallest that keeps.

grid       W {2, 3, 4, 8} x M {2, 2.5, 3, 4, 8} x first state {4, 8, 16}, by smallest.py
narrowed   the grid's best with 1, 2, ... of its largest layers one width narrower, by the same search
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ptq4snn.errors import GoalNotReached, SilentNetworkWarning
from ptq4snn.evaluation.noise import noise_floor
from ptq4snn.frontier.candidates import Candidate, Catalog
from ptq4snn.frontier.dealing import deal
from ptq4snn.frontier.finished import Finished, Kept, identity
from ptq4snn.frontier.goal import Goal, Quality
from ptq4snn.frontier.judge import Judge
from ptq4snn.frontier.smallest import smallest
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.pipeline import prepare, run
from ptq4snn.prepare import Where
from ptq4snn.progress import Progress, note
from ptq4snn.recipe import Recipe
from ptq4snn.report.figures import frontier as figure
from ptq4snn.report.units import size
from ptq4snn.team import SOLO, Team

__all__ = ["Conditions", "reach"]


@dataclass(frozen=True)
class Conditions:
    """How samples are read, where the model runs, who is told, and where finished candidates are kept."""

    batch_axis: int
    device: str | torch.device | None
    progress: Progress
    work: Path | None = None
    team: Team = SOLO


def reach(model: nn.Module, samples: Any, recipe: Recipe, conditions: Conditions) -> QuantizedModel:
    """The smallest model that keeps the recipe's goal on samples that did not calibrate it."""
    dealt = deal(samples, recipe, conditions.batch_axis)
    where = Where(conditions.device, conditions.team)
    prepared = prepare(
        model, dealt.calibration, recipe, conditions.batch_axis, conditions.progress, where
    ).with_work(conditions.work)
    judge = Judge.of(prepared, dealt)
    material = "" if conditions.work is None else identity(prepared, dealt)
    search = Search(
        Catalog(prepared, recipe),
        judge,
        Goal.of(recipe),
        Finished(conditions.work, material, conditions.team),
    )
    chosen = search.run()
    return search.model_of(chosen, model)


@dataclass
class Search:
    catalog: Catalog
    judge: Judge
    goal: Goal
    finished: Finished
    tried: list[tuple[Kept, Quality]] = field(default_factory=list)
    _last: tuple[Candidate, QuantizedModel] | None = None  # the smallest that was made here

    def run(self) -> Kept:
        """The smallest that keeps the goal, of those that were tried."""
        best = smallest(self.catalog.grid(), self.keeps)
        if best is None:
            raise GoalNotReached(self._refusal())
        smallest([*self.catalog.narrowed(best)], self.keeps)
        kept = [(done, i) for i, (done, quality) in enumerate(self.tried) if quality.kept]
        chosen = min(kept, key=lambda k: (k[0].bytes, k[0].candidate.bytes, k[1]))[0]
        low = self.goal.quality(chosen.outcome, self.judge.right).low
        note(
            self.catalog.prepared.progress,
            f"taken: {chosen.candidate.name}, {size(chosen.bytes)}; on {self.judge.dealt.judges} samples its "
            f"{self.goal.measure} may be as low as {low:.2f} %, more samples tell more",
        )
        return chosen

    def keeps(self, candidate: Candidate) -> bool:
        done = self.finished.get(candidate) or self._make(candidate)
        quality = self.goal.quality(done.outcome, self.judge.right)
        self.tried.append((done, quality))
        note(self.catalog.prepared.progress, self._line(done, quality))
        return quality.kept

    def _make(self, candidate: Candidate) -> Kept:
        prepared = self.catalog.prepared
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            q = run(prepared, candidate.recipe)
        told = tuple(dict.fromkeys(str(w.message) for w in caught))
        done = Kept(candidate, self.catalog.cost_of(q.plan, q.program), self.judge.outcome(q), told)
        self.finished.put(done, q)
        if self.goal.quality(done.outcome, self.judge.right).kept:
            self._last = (candidate, q)
        return done

    def model_of(self, chosen: Kept, model: nn.Module) -> QuantizedModel:
        """The chosen one with the frontier in its report, and what it was warned of."""
        q = self._last[1] if self._last is not None and self._last[0] == chosen.candidate else None
        q = q or self.finished.load(chosen.candidate, model)
        q = q or run(self.catalog.prepared, chosen.candidate.recipe)
        for text in chosen.warnings:
            warnings.warn(text, SilentNetworkWarning if "silent" in text else UserWarning, stacklevel=4)
        points = [
            figure.Tried(
                done.candidate.name, done.candidate.recipe.to_dict(), done.candidate.narrower, done.bytes,
                (quality.value, quality.low, quality.high), quality.kept, done is chosen,
            )
            for done, quality in self.tried
        ]  # fmt: skip
        right = self.judge.right
        floating = None if right is None else 100 * float(right.double().mean())
        asked = figure.Asked(
            self.goal.measure, self.goal.asked, self.goal.limit(right), floating, self.judge.dealt.judges
        )
        q.report["figures"]["frontier"] = figure.data(asked, points)
        return q

    def _line(self, done: Kept, quality: Quality) -> str:
        verdict = "kept" if quality.kept else "not kept"
        again = ", as stored" if done.stored else ""
        name, count = done.candidate.name, len(self.tried)
        return f"{count}: {name}, {size(done.bytes)}, {self.goal.measure} {quality}: {verdict}{again}"

    def _refusal(self) -> str:
        done, quality = max(self.tried, key=lambda t: t[1].value)
        right = self.judge.right
        beside = "" if right is None else f", the float model {100 * float(right.double().mean()):.2f} %"
        noise = ""
        if self.goal.measure == "agreement":
            same = 100 * noise_floor(self.catalog.prepared)[1]
            noise = f" (0.01 % of weight noise alone leaves {same:.2f} %)"
        return (
            f"no model is known to keep {self.goal}: the best found, {done.candidate.name} of "
            f"{size(done.bytes)}, has {self.goal.measure} {quality} on "
            f"{self.judge.dealt.judges} held-out samples{beside}{noise}; "
            "ask for less, give more samples, or quantize better (--recipe best)"
        )

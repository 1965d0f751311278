"""A model with its data, to run methods on: draws samples, quantizes, scores, and keeps what is done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol, cast

from ptq4snn.extras import needed_by

with needed_by("ptq4snn.experiments.compare"):
    import torch
    from torch import nn

from ptq4snn import __version__
from ptq4snn.data.data_digest import data_digest
from ptq4snn.data.samples import SampleBatches
from ptq4snn.discovery.model_digest import model_digest
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.errors import DataError
from ptq4snn.experiments.draws import draw, pool, reiterable
from ptq4snn.experiments.methods import Method
from ptq4snn.experiments.scoring import score
from ptq4snn.forms import inputs_and_labels
from ptq4snn.hashing import code_digest, digest
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.prepare import Where
from ptq4snn.progress import Progress, Silent
from ptq4snn.recipe import Recipe
from ptq4snn.run_store import Store
from ptq4snn.schema.comparison_types import Made, Measured, RunResult
from ptq4snn.schema.score_types import Task
from ptq4snn.team import SOLO, Team

__all__ = ["Bench", "Conditions", "today"]

Score = Literal["accuracy", "accuracy_top5", "mIoU", "aAcc", "mAcc"]
SCORES: Mapping[Task, tuple[Score, ...]] = {  # the first is the one that methods are compared by
    "classification": ("accuracy", "accuracy_top5"),
    "segmentation": ("mIoU", "aAcc", "mAcc"),
}
KEEPS_SAMPLES = "gptq"  # a rounding that needs all calibration samples again
ROUNDING = "rounding"  # folder in which the rounding of weights keeps what a killed run goes on from


class Workers(Protocol):
    """Others that runs can be given to."""

    def results(
        self, bench: Bench, tasks: Sequence[tuple[Method, int | None]]
    ) -> Iterator[tuple[int, RunResult, bool]]:
        """The number of each task, its figures, and whether they were there already, as they become known."""
        ...


@dataclass(frozen=True)
class Conditions:
    """What all runs share beside model and data: how samples are read, and where the model runs."""

    limit: int | None = None  # of test samples
    batch_axis: int = 0
    device: Any = None
    progress: Progress = field(default_factory=Silent)
    team: Team = SOLO  # processes that share every run
    cluster: Workers | None = None  # whoever takes whole runs


@dataclass
class Bench:
    """A model with its data: runs methods, and looks up what was run before."""

    model: nn.Module
    calibration: SampleBatches[Any]
    test: Any
    store: Store
    conditions: Conditions
    _prepared: tuple[str, Prepared] | None = None
    _drawn: dict[tuple[int, int], str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: nn.Module, calibration: Any, test: Iterable[Any], folder: str | Path,
        conditions: Conditions | None = None,
    ) -> Bench:  # fmt: skip
        """From whatever `compare` takes."""
        conditions = conditions or Conditions()
        drawn_from = pool(calibration, conditions.batch_axis)
        return cls(model, drawn_from, reiterable(test), Store(folder), conditions)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Hashes of the model (weights and recorded graph) and of the test samples."""
        few = self.calibration.samples[list(self.calibration.indices[:2])]
        return {
            "model": model_digest(self.model, inputs_and_labels(few, labels=False)[0]),
            "test": self._data_digest(self.test, self.conditions.limit),
        }

    def drawn_digest(self, recipe: Recipe) -> str:
        """The hash of the calibration samples that the recipe draws."""
        key = (recipe.calibration, recipe.seed)
        if key not in self._drawn:
            self._drawn[key] = self._data_digest(self.drawn(recipe), None)
        return self._drawn[key]

    def _data_digest(self, batches: Any, limit: int | None) -> str:
        return data_digest(batches, limit, self.conditions.batch_axis, self.store.folder)

    def setting(self, method: Method, seed: int | None) -> dict[str, Any]:
        """What decides a result."""
        recipe = method.key()
        common = {
            "version": __version__, "code": code_digest(), **self.identity, "limit": self.conditions.limit,
            "batch_axis": self.conditions.batch_axis,
        }  # fmt: skip
        if method.recipe is None or recipe is None or seed is None:
            return {**common, "recipe": None}
        drawn = self.drawn_digest(method.recipe.replace(seed=seed))
        return {**common, "calibration": drawn, "recipe": {**recipe, "seed": seed}}

    def result(self, method: Method, seed: int | None) -> tuple[RunResult, bool]:
        """The figures of a run, and whether they were there already."""
        setting = self.setting(method, seed)
        if (found := self.stored(setting)) is not None:
            return found, True
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            made = self.run_float() if method.recipe is None else self.run(method.recipe.replace(seed=seed))
        result: RunResult = {"seed": seed, **made, "date": today(), "version": __version__}
        made_again: RunResult = json.loads(json.dumps(result))  # the same whether it is read again or not
        self.keep(setting, made_again)
        return made_again, False

    def stored(self, setting: dict[str, Any]) -> RunResult | None:
        """What is known of it already."""
        found = self.conditions.team.told(partial(self.store.get, setting), "finished runs")
        return cast("RunResult | None", found)

    def keep(self, setting: dict[str, Any], result: RunResult) -> None:
        if self.conditions.team.leads:
            self.store.put(setting, cast(dict[str, Any], result))

    def float_model(self) -> nn.Module:
        """A copy as it is evaluated."""
        model = copy_model(self.model).eval()
        return model if self.conditions.device is None else model.to(self.conditions.device)

    def run_float(self) -> Made:
        return {"recipe": None, "report": None, **self.measure(self.float_model(), 0.0)}

    def run(self, recipe: Recipe) -> Made:
        prepared = self.prepared(recipe)
        began = perf_counter()
        q = run(prepared, recipe)
        seconds = perf_counter() - began
        report = q.report.copy()
        del report["figures"]  # too large for each run
        return {"recipe": recipe.to_dict(), "report": report, **self.measure(q, seconds)}

    def measure(self, model: nn.Module, quantizing: float) -> Measured:
        """Scores on the test samples."""
        began, c = perf_counter(), self.conditions
        found = score(model, self.test, c.batch_axis, c.limit, c.progress, c.team)
        names = SCORES[found["task"]]
        if (first := found[names[0]]) is None:
            raise DataError("the test samples have no labels: a comparison needs them")
        return {
            "task": found["task"],
            "metric": names[0],
            "score": first,
            "scores": {n: found[n] for n in names},
            "samples": found["samples"],
            "right": found["right"],
            "seconds": {"quantize": quantizing, "evaluate": perf_counter() - began},
        }

    def drawn(self, recipe: Recipe) -> SampleBatches[Any]:
        """The calibration samples of the recipe's seed."""
        return draw(self.calibration, recipe.calibration, recipe.seed)

    def prepared(self, recipe: Recipe) -> Prepared:
        """The model observed on the seed's samples: once for all methods of a seed."""
        protocol = {
            "seed": recipe.seed,
            "count": recipe.calibration,
            "excluded": sorted(pattern for pattern, rule in recipe.overrides.items() if rule.exclude),
            "parts": [recipe.holdout, recipe.micro_batch],
        }
        key = digest({**self.identity, **protocol, "calibration": self.drawn_digest(recipe)})
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = None  # frees the last seed's
            # results must not hang on who comes first
            any_method = recipe.replace(rounding=KEEPS_SAMPLES, sensitivity_batches=None)
            made = prepare(
                self.model,
                self.drawn(recipe),
                any_method,
                self.conditions.batch_axis,
                self.conditions.progress,
                Where(self.conditions.device, self.conditions.team),
            )
            self._prepared = (key, made.with_work(self.store.folder / ROUNDING))
        return self._prepared[1]


def today() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")

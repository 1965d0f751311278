"""Methods of quantization on one model under one protocol.

For each seed ONE calibration set is drawn from the calibration split, without labels, and ONE float pass
observes the model on it; every method then quantizes from that observation. All methods share the checkpoint,
the samples and their order, the precision of the first and last layers, and the test samples. Every finished
run is stored, so that a second comparison reuses it and a killed one goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, cast

from ptq4snn.extras import needed_by

with needed_by("ptq4snn.experiments.compare"):
    import torch
    from torch import nn

from ptq4snn import __version__
from ptq4snn.data.data_digest import data_digest
from ptq4snn.data.samples import SampleBatches
from ptq4snn.discovery.model_digest import model_digest
from ptq4snn.discovery.surgery import copy_model
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.experiments.comparison import Comparison
from ptq4snn.experiments.draws import draw, pool, reiterable
from ptq4snn.experiments.methods import Method, find_baseline, parse_methods
from ptq4snn.experiments.scoring import score
from ptq4snn.forms import inputs_and_labels
from ptq4snn.hashing import code_digest, digest
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.progress import Progress, Silent, chosen
from ptq4snn.recipe import Recipe
from ptq4snn.run_store import Store
from ptq4snn.schema.comparison_types import Made, Measured, Run, RunResult
from ptq4snn.schema.score_types import Task

__all__ = ["Bench", "Conditions", "Report", "compare", "compare_on", "silent", "today"]

Report = Callable[[Method, int | None, RunResult, bool], None]  # method, seed, result, was it stored
Score = Literal["accuracy", "accuracy_top5", "mIoU", "aAcc", "mAcc"]
SCORES: Mapping[Task, tuple[Score, ...]] = {  # the first is the one that methods are compared by
    "classification": ("accuracy", "accuracy_top5"),
    "segmentation": ("mIoU", "aAcc", "mAcc"),
}
KEEPS_SAMPLES = "gptq"  # a rounding that needs all calibration samples again
ROUNDING = "rounding"  # folder in which the rounding of weights keeps what a killed run goes on from


def silent(method: Method, seed: int | None, result: RunResult, stored: bool) -> None:
    """A report that says nothing."""


def compare(
    model: nn.Module,
    calibration: Any,
    test: Iterable[Any],
    methods: Iterable[str | Method],
    seeds: Sequence[int] = (0,),
    *,
    folder: str | Path = "runs/compare",
    baseline: str | None = None,
    changes: Mapping[str, Any] | None = None,
    limit: int | None = None,
    batch_axis: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | bool | None = None,
    report: Report = silent,
) -> Comparison:
    """Quantize the model by every method and seed, and evaluate each on the same test samples.

    calibration: samples to draw from: SampleBatches, a tensor, or an iterable of batches (read whole).
    test: labelled batches (x, y).
    methods: recipes ("gptq+reuse+uniform+w4m4"), "LABEL=RECIPE", or Method values; the float model is added.
    folder: where finished runs are kept. changes: fields replaced in every recipe, such as `iterations`.
    baseline: the method that the others are compared with; without it each with its rounding at M32.
    limit: only the first test samples, at most so many.
    progress: None shows bars if stderr is a terminal, False nothing; or an object of your own.
    """
    conditions = Conditions(limit, batch_axis, device, chosen(progress))
    bench = Bench.of(model, calibration, test, folder, conditions)
    return compare_on(bench, methods, seeds, baseline, changes, report)


def compare_on(
    bench: Bench,
    methods: Iterable[str | Method],
    seeds: Sequence[int] = (0,),
    baseline: str | None = None,
    changes: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Comparison:
    """`compare` on a model whose data is open already."""
    chosen = parse_methods(methods, changes)
    against = None if baseline is None else find_baseline(chosen, baseline)
    unique = check_seeds(seeds)
    runs: list[Run] = []
    for seed in unique:
        for method in chosen:
            if method.recipe is None and seed != unique[0]:
                continue  # draws nothing
            result, stored = bench.result(method, None if method.recipe is None else seed)
            runs.append({"label": method.label, "spec": method.spec, **result})
            report(method, result["seed"], result, stored)
    return Comparison(chosen, unique, runs, against)


def check_seeds(seeds: Sequence[int]) -> list[int]:
    unique = list(dict.fromkeys(seeds))
    if not unique:
        raise PTQ4SNNError("there is no seed: give at least one")
    return unique


@dataclass(frozen=True)
class Conditions:
    """What all runs share beside model and data: how samples are read, and where the model runs."""

    limit: int | None = None  # of test samples
    batch_axis: int = 0
    device: Any = None
    progress: Progress = field(default_factory=Silent)


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
        found = self.store.get(setting)
        if found is not None:
            return cast(RunResult, found), True
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            made = self.run_float() if method.recipe is None else self.run(method.recipe.replace(seed=seed))
        result: RunResult = {"seed": seed, **made, "date": today(), "version": __version__}
        found = json.loads(json.dumps(result))  # the same whether it is read again or not
        self.store.put(setting, found)
        return found, False

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
        found = score(model, self.test, c.batch_axis, c.limit, c.progress)
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
                self.conditions.device,
                self.conditions.progress,
            )
            self._prepared = (key, made.with_work(self.store.folder / ROUNDING))
        return self._prepared[1]


def today() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")

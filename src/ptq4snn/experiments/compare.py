"""Methods of quantization on one model under one protocol.

For each seed ONE calibration set is drawn from the calibration split, without labels, and ONE float pass
observes the model on it; every method then quantizes from that observation. All methods share the checkpoint,
the samples and their order, the precision of the first and last layers, and the test samples. Every finished
run is stored, so that a second comparison reuses it and a killed one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq4snn.extras import needed_by

with needed_by("ptq4snn.experiments.compare"):
    import torch
    from torch import nn

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.bench import Bench, Conditions
from ptq4snn.experiments.cluster import Cluster
from ptq4snn.experiments.comparison import Comparison
from ptq4snn.experiments.methods import Method, find_baseline, parse_methods
from ptq4snn.progress import Progress, chosen
from ptq4snn.schema.comparison_types import Run, RunResult
from ptq4snn.team import SOLO, Team

__all__ = ["Report", "compare", "compare_on", "silent"]

Report = Callable[[Method, int | None, RunResult, bool], None]  # method, seed, result, was it stored


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
    cluster: Cluster | str | None = None,
    team: Team = SOLO,
) -> Comparison:
    """Quantize the model by every method and seed, and evaluate each on the same test samples.

    calibration: samples to draw from: SampleBatches, a tensor, or an iterable of batches (read whole).
    test: labelled batches (x, y).
    methods: recipes ("gptq+reuse+uniform+w4m4"), "LABEL=RECIPE", or Method values; the float model is added.
    folder: where finished runs are kept. changes: fields replaced in every recipe, such as `iterations`.
    baseline: the method that the others are compared with; without it each with its rounding at M32.
    limit: only the first test samples, at most so many.
    progress: None shows bars if stderr is a terminal, False nothing; or an object of your own.
    cluster: the address of a Ray cluster whose workers do the runs, or "local"; the figures are the same.
    team: processes that share every run (ptq4snn.team); the figures are the same.
    """
    conditions = Conditions(limit, batch_axis, device, chosen(progress), team, Cluster.of(cluster))
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
    # the float model draws nothing
    tasks = [
        (m, None if m.recipe is None else s) for s in unique for m in chosen if m.recipe or s == unique[0]
    ]
    done: dict[int, RunResult] = {}
    for i, result, stored in results(bench, tasks):
        report(*tasks[i], result, stored)
        done[i] = result
    runs: list[Run] = [{"label": m.label, "spec": m.spec, **done[i]} for i, (m, _) in enumerate(tasks)]
    return Comparison(chosen, unique, runs, against)


def results(
    bench: Bench, tasks: Sequence[tuple[Method, int | None]]
) -> Iterator[tuple[int, RunResult, bool]]:
    """The number of each run, its figures, and whether they were there already, as they become known."""
    if bench.conditions.cluster is not None:
        yield from bench.conditions.cluster.results(bench, tasks)
        return
    for i, task in enumerate(tasks):
        yield (i, *bench.result(*task))


def check_seeds(seeds: Sequence[int]) -> list[int]:
    unique = list(dict.fromkeys(seeds))
    if not unique:
        raise PTQ4SNNError("there is no seed: give at least one")
    return unique

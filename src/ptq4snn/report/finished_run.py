"""What a finished run left behind, as data: a bundle's report, a comparison, or an experiment.

This package imports no torch: a report can be read where the model cannot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ptq4snn.bundle.report_check import check_report
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.schema.comparison_types import ComparisonData
from ptq4snn.schema.report_types import Report

__all__ = ["Kind", "Run", "completed", "read_run", "whole"]

Kind = Literal["report", "comparison", "experiment"]
REPORT = ".report.json"


@dataclass(frozen=True)
class Run:
    """`data` is the file's JSON object; what is in it depends on the kind."""

    path: Path  # the JSON file
    kind: Kind
    data: dict[str, Any]

    @property
    def report(self) -> Report:
        """The data of a report, as it is meant; `whole` tells where somebody edited it."""
        return cast(Report, self.data)

    @property
    def comparison(self) -> ComparisonData:
        return cast(ComparisonData, self.data)


def read_run(path: str | Path) -> Run:
    """The run of a bundle (model.ptq), of its report, or of a JSON file of `compare` or `experiment`."""
    file = _json_file(Path(path))
    data = _read(file)
    kind = _kind(data)
    if kind is None:
        raise PTQ4SNNError(
            f"{file} is not a report: name a bundle, its {REPORT}, or a JSON file of compare or experiment"
        )
    if kind != "report":
        return Run(file, kind, data)
    bundle = file.with_name(file.name.removesuffix(REPORT))
    if file.name.endswith(REPORT) and bundle.is_file():
        check_report(data, file, bundle)
    return Run(file, kind, dict(completed(data)))


def completed(report: Mapping[str, Any]) -> Report:
    """A report of an older version tells what it knows: it has no figures and no evaluations."""
    found = {"figures": {}, "evaluations": [], **report}
    summary, neurons = found.get("summary"), found.get("neurons")
    if isinstance(summary, dict) and isinstance(neurons, list):
        known = _missing_keys(summary, neurons)
        found["summary"] = summary | {k: v for k, v in known.items() if k not in summary}
    return cast(Report, found)


def _missing_keys(summary: dict[str, Any], neurons: list[Any]) -> dict[str, Any]:
    """What the summary of an older report does not repeat; it knew no maps."""
    recipe = summary.get("recipe")
    steps = [n["steps"] for n in neurons if isinstance(n, dict) and isinstance(n.get("steps"), int)]
    return {
        "task": "classification",
        "arithmetic": recipe.get("arithmetic") if isinstance(recipe, dict) else None,
        "steps": max(steps, default=0),
    }


@contextmanager
def whole(run: Run) -> Iterator[None]:
    """Around whatever reads a run's data: a file that somebody edited is told in one sentence."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as why:
        raise PTQ4SNNError(f"{run.path} is not a whole {run.kind} ({why!r}): make it again") from why


def _json_file(path: Path) -> Path:
    """The file itself, or the report beside a bundle."""
    beside = Path(f"{path}{REPORT}")
    if path.is_dir():
        raise PTQ4SNNError(f"{path} is a folder: name a bundle or a JSON file in it")
    if path.suffix == ".json" and path.is_file():
        return path
    if beside.is_file():
        return beside
    if path.is_file():
        raise PTQ4SNNError(f"{path} has no report beside it ({beside.name}): quantize again to make one")
    raise PTQ4SNNError(f"there is no run {path}: name a bundle that quantize wrote, or a JSON file")


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as why:
        raise PTQ4SNNError(f"{file} is not a report: it is no JSON ({why})") from why


def _kind(data: Any) -> Kind | None:
    """By the keys that only this kind has; None for any other JSON."""

    def has(*names: str) -> bool:
        return isinstance(data, dict) and all(n in data for n in names)

    if has("summary", "neurons", "projections"):
        return "report"
    if has("experiment", "rows"):
        return "experiment"
    return "comparison" if has("seeds", "rows", "runs") else None

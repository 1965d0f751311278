"""The figures by name. Each module has one: its data, its chart, its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.hints import hint
from ptq4snn.report.figure import Figure
from ptq4snn.report.figures import (
    allocation,
    bridge_analysis,
    distributions,
    frontier,
    layers,
    membrane_cost,
    memory,
    methods,
    segmentation,
    sweep,
    time,
)
from ptq4snn.report.finished_run import Run
from ptq4snn.report.panel import Panel

__all__ = ["FIGURES", "figure_data", "figure_made_by", "figure_panels", "find_figure", "missing"]

FIGURES: dict[str, Figure] = {
    module.FIGURE.name: module.FIGURE
    for module in (
        membrane_cost, memory, distributions, bridge_analysis, allocation, layers, time, sweep, frontier,
        segmentation, methods,
    )
}  # fmt: skip


def find_figure(name: str) -> Figure:
    """The figure of that name; of a misspelt one the nearest is suggested."""
    if name in FIGURES:
        return FIGURES[name]
    raise PTQ4SNNError(f"there is no figure {name!r}: {hint(name, FIGURES, '`ptq4snn figure` lists them')}")


def figure_made_by(experiment: str) -> Figure:
    """The figure that an experiment makes."""
    return {f.experiment or name: f for name, f in FIGURES.items()}[experiment]


def figure_panels(figure: Figure, data: Any, neurons: Sequence[str] = ()) -> list[Panel]:
    """Drawn from data of `figure_data`."""
    if neurons and not figure.chooses:
        able = ", ".join(f.name for f in FIGURES.values() if f.chooses)
        raise PTQ4SNNError(f"--neuron does not apply to {figure.name}: only to {able}")
    panels = figure.panels(data, neurons) if figure.chooses else figure.panels(data)
    if not panels:
        raise PTQ4SNNError(f"this run has nothing to draw for {figure.name}: its data is empty")
    return panels


def figure_data(run: Run, name: str) -> Any:
    """What the figure is drawn from; None where the run has none, and `missing` tells why."""
    figure = FIGURES[name]
    return figure.of_report(run.report) if run.kind == "report" else figure.of_experiment(run.data)


def missing(run: Run, name: str) -> str:
    """Why a run has no such figure."""
    if run.kind != "report":
        about = "methods" if "runs" in run.data else run.data["experiment"]
        return f"{run.path.name} is about {about}"
    if not run.report["figures"]:
        return "its report is of an older version of ptq4snn; quantize again"
    return FIGURES[name].absent(run.report)

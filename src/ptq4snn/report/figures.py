"""The figures by name, and where a run keeps their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.hints import hint
from ptq4snn.report.charts import (
    allocation,
    bridge_analysis,
    distributions,
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

__all__ = ["FIGURES", "Figure", "figure_data", "figure_panels", "find_figure", "missing"]

Data = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    name: str
    line: str  # what it shows
    make: Callable[..., list[Panel]]  # of the data, and of chosen neurons where `chooses`
    columns: int = 2  # panels side by side in a file
    chooses: bool = False
    one_legend: bool = False  # for all panels of a file


FIGURES: dict[str, Figure] = {
    f.name: f
    for f in (
        Figure("membrane-cost", "memory against batch size, state traffic against T", membrane_cost.panels),
        Figure("memory", "memory for one sample before and after, part by part", memory.panels, columns=1),
        Figure(
            "distributions",
            "weights and states of three channels, with the levels of the state",
            distributions.panels,
            columns=3,
            chooses=True,
            one_legend=True,
        ),
        Figure("bridge-analysis", "exponents k; bridged against observer scales", bridge_analysis.panels),
        Figure("allocation", "score ranking by bits; the bits in every stage", allocation.panels, columns=1),
        Figure(
            "layers", "saturation, flipped spikes, firing rates of layers", layers.panels, 1, chooses=True
        ),
        Figure("time", "the same for every time step; lines with --neuron", time.panels, chooses=True),
        Figure("sweep", "the search for beta and percentile", sweep.panels),
        Figure(
            "segmentation", "image, label, float and quantized prediction", segmentation.panels, columns=4
        ),
        Figure("methods", "methods of a comparison by their score", methods.panels, columns=1),
    )
}


def find_figure(name: str) -> Figure:
    """The figure of that name; of a misspelt one the nearest is suggested."""
    if name in FIGURES:
        return FIGURES[name]
    about = hint(name, FIGURES, "`ptq4snn figure` lists them")
    raise PTQ4SNNError(f"there is no figure {name!r}: {about}")


def figure_panels(figure: Figure, data: Data, neurons: Sequence[str] = ()) -> list[Panel]:
    """Drawn from data of `figure_data`."""
    if neurons and not figure.chooses:
        able = ", ".join(f.name for f in FIGURES.values() if f.chooses)
        raise PTQ4SNNError(f"--neuron does not apply to {figure.name}: only to {able}")
    panels = figure.make(data, neurons) if figure.chooses else figure.make(data)
    if not panels:
        raise PTQ4SNNError(f"this run has nothing to draw for {figure.name}: its data is empty")
    return panels


def figure_data(run: Run, name: str) -> Data | None:
    """What the figure is drawn from; None where the run has none, and `missing` tells why."""
    find = {"report": of_report, "comparison": of_methods, "experiment": of_experiment}[run.kind]
    return find(run.data, name)


def of_report(report: Data, name: str) -> Data | None:
    if name in ("layers", "time"):
        return {"neurons": report["neurons"]} if report["neurons"] else None
    found: Data | None = report["figures"].get(name)
    if found is None or not (found["rows"] or found.get("stages")):
        return None
    if name == "allocation" and found["by"] == "uniform":
        return None
    if name == "sweep":  # with what was taken in the end
        return {**found, **{key: report["summary"].get(key) for key in ("beta", "percentile")}}
    return found


def missing(run: Run, name: str) -> str:
    """Why a run has no such figure."""
    if run.kind != "report":
        about = "methods" if "runs" in run.data else run.data["experiment"]
        return f"{run.path.name} is about {about}"
    if not run.data["figures"]:
        return "its report is of an older version of ptq4snn; quantize again"
    coupling = (run.data["summary"].get("recipe") or {}).get("coupling")
    how = (run.data["figures"].get("allocation") or {}).get("by", "not known")
    reasons = {
        "allocation": f"there is no ranking, as the allocation is {how}; quantize with --recipe paper+w4m4",
        "sweep": f"nothing was searched, as the allocation is {how}; quantize with --recipe paper+w4m4",
        "bridge-analysis": f"states are not coupled ({coupling}); quantize with --coupling bridge",
        "distributions": "no neuron inside the budget is fed by a single projection",
        "segmentation": "the network gives no label maps",
        "methods": "one run has one method; name the JSON file of `ptq4snn compare`",
    }
    return reasons.get(name, "its report does not hold it; quantize again")


def of_methods(comparison: Data, name: str) -> Data | None:
    return comparison if name == "methods" and comparison["rows"] else None


def of_experiment(experiment: Data, name: str) -> Data | None:
    if experiment["experiment"] == "sweep" and name == "sweep":
        return {"rows": swept(experiment)}
    if "runs" in experiment:
        return of_methods(experiment, name)
    return experiment if experiment["experiment"] == name and experiment["rows"] else None


def swept(experiment: Data) -> list[Data]:
    """The rows of `experiment sweep` that have a beta and a percentile."""
    recipes = {r["label"]: r["recipe"] for r in experiment["runs"] if r.get("recipe")}
    return [
        {key: recipes[r["method"]][key] for key in ("beta", "percentile")}
        | {key: r.get(key) for key in ("score", "kl", "agreement", "average_bits")}
        for r in experiment["rows"]
        if r["method"] in recipes
    ]

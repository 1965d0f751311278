"""One page that tells all about a run: a single file, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ptq4snn import __version__
from ptq4snn.extras import needed_by
from ptq4snn.files import write_whole
from ptq4snn.report import headline
from ptq4snn.report.deployment import Deployment
from ptq4snn.report.figures.segmentation import KINDS
from ptq4snn.report.finished_run import Run, completed
from ptq4snn.report.payload import Payload
from ptq4snn.report.recipe_text import as_python, as_toml
from ptq4snn.report.sections import deployment, of_added, of_run
from ptq4snn.report.theme import BITS, DARK, LIGHT
from ptq4snn.report.units import percent
from ptq4snn.schema.report_types import Report

__all__ = ["render_page", "write_page"]


def write_page(
    report: Report,
    path: Path,
    added: Sequence[Run] = (),
    name: str | None = None,
    ways: Deployment | None = None,
) -> None:
    """The page of a report, with what comparisons and experiments add to it.

    report: may be empty, where all there is to tell is added. name: of the run, if the file has another.
    ways: out of the bundle, where it is known.
    """
    own = path.name.removesuffix(".html").removesuffix(".report")
    write_whole(path, render_page(report, name or own, added, ways))


def render_page(report: Report, name: str, added: Sequence[Run] = (), ways: Deployment | None = None) -> str:
    with needed_by("a page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    report = completed(report) if report else {}
    payload = Payload()
    own, others = of_run(report, payload) if report else [], of_added(added, payload)
    out = [] if ways is None else [deployment(ways, name)]
    environment = Environment(
        loader=PackageLoader("ptq4snn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        **(first_screen(report) if report else of_several(added)),
        name=name,
        sections=[*own[:1], *others, *own[1:], *out],  # methods beside the accuracy
        kinds=KINDS,
        percent=percent,
        bits=BITS,
        light=LIGHT,
        dark=DARK,
        payload=payload.text(),
        vega=files("ptq4snn").joinpath("assets/vega/vega.min.js").read_text(encoding="utf-8"),
    )


def first_screen(report: Report) -> dict[str, Any]:
    summary = report["summary"]
    return {
        "title": headline.title(summary),
        "lead": headline.lead(report),
        "setting": headline.setting(summary),
        "cards": headline.cards(report),
        "warnings": headline.warnings(report),
        "toml": as_toml(summary["recipe"]),
        "python": as_python(summary["recipe"]),
        "version": summary.get("version", __version__),
    }


def of_several(added: Sequence[Run]) -> dict[str, Any]:
    """Of comparisons and experiments alone: there are no cards."""
    names = ", ".join(run.path.name for run in added)
    return {
        "title": "Comparison of methods"
        if any("runs" in run.data for run in added)
        else "Figures of the paper",
        "lead": f"From {names}.",
        "setting": [],
        "cards": [],
        "warnings": [],
        "toml": None,
        "python": None,
        "version": next((run.data["version"] for run in added if "version" in run.data), __version__),
    }

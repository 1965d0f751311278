"""What a figure consists of: its words, where a run keeps its data, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ptq4snn.report.panel import Panel
from ptq4snn.schema.report_types import Report

__all__ = ["Figure", "Heading"]

Data = Any  # of the figure's own type in schema/figure_types.py


@dataclass(frozen=True)
class Heading:
    """Of the page's section that shows the figure."""

    id: str
    short: str  # in the list of contents
    title: str
    lead: str = ""


def not_held(report: Report) -> str:
    return "its report does not hold it; quantize again"


@dataclass(frozen=True)
class Figure:
    """`panels` draws the data, and chosen neurons of it where `chooses`; `text` is for a terminal.

    look: what it is drawn from in a report, for those that are not under their name in its `figures`.
    of_runs: the same in a file of `compare` or `experiment` that has runs. absent: why a report has none.
    experiment: the one that makes it, for those that have not its name.
    """

    name: str
    line: str  # what it shows
    panels: Callable[..., list[Panel]]
    text: Callable[[Any], list[str]] | None = None
    heading: Heading | None = None
    look: Callable[[Report], Data | None] | None = None
    of_runs: Callable[[Mapping[str, Any]], Data | None] | None = None
    absent: Callable[[Report], str] = not_held
    columns: int = 2  # panels side by side in a file
    chooses: bool = False
    one_legend: bool = False  # for all panels of a file
    experiment: str = ""

    def lines(self, data: Data) -> list[str]:
        """The figure as plain text."""
        if self.text is None:  # somebody edited the name of an experiment
            raise LookupError(f"{self.name} is not drawn as text")
        return self.text(data)

    def of_report(self, report: Report) -> Data | None:
        """None where the report has none."""
        if self.look is not None:
            return self.look(report)
        found: Any = report["figures"].get(self.name)
        return found if found is not None and found["rows"] else None

    def of_experiment(self, found: Mapping[str, Any]) -> Data | None:
        """The same of a file of `compare` or `experiment`."""
        if "runs" in found:
            return None if self.of_runs is None else self.of_runs(found)
        made = found["experiment"] == (self.experiment or self.name)
        return found if made and found["rows"] else None

"""`ptq4snn summary`: a finished run on one screen, from its JSON alone. Does not import torch.

Where the bundle is, it is read for the ways out of it.
"""

from __future__ import annotations

import argparse
import json

from ptq4snn.cli.ways import ways_beside
from ptq4snn.report.comparison_text import comparison_table
from ptq4snn.report.deployment import deployment_lines
from ptq4snn.report.figures import figure_made_by
from ptq4snn.report.finished_run import REPORT, Run, read_run, whole
from ptq4snn.report.terminal import show, show_lines

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    found = read_run(args.out)
    with whole(found):
        if args.json:
            print(json.dumps(found.data["summary" if found.kind == "report" else "rows"], indent=2))
        elif found.kind == "report":
            show(found.report, args.all)
            if (ways := ways_beside(found, args)) is not None:
                show_lines(deployment_lines(ways, found.path.name.removesuffix(REPORT)))
        else:
            show_lines(lines(found))


def lines(found: Run) -> list[str]:
    """The table of a comparison, or the figure of an experiment, under its title."""
    data = found.data
    head = [f"{data['title']} ({data['part']} of the paper)", ""] if found.kind == "experiment" else []
    if "runs" in data:
        return head + comparison_table(found.comparison)
    return head + figure_made_by(data["experiment"]).lines(data)

"""`ptq4snn summary`: a finished run on one screen, from its JSON alone. Does not import torch.

Where the bundle is, it is read for the ways out of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ptq4snn.report.comparison_text import comparison_table
from ptq4snn.report.figures import FIGURES
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
            if (bundle := bundle_beside(found)) is not None:
                from ptq4snn.targets.ways_out import ways_out  # here: what reads no bundle needs no NumPy

                show_lines(ways_out(bundle))
        else:
            show_lines(lines(found))


def lines(found: Run) -> list[str]:
    """The table of a comparison, or the figure of an experiment, under its title."""
    data = found.data
    head = [f"{data['title']} ({data['part']} of the paper)", ""] if found.kind == "experiment" else []
    if "runs" in data:
        return head + comparison_table(found.comparison)
    return head + FIGURES[data["experiment"]].lines(data)


def bundle_beside(found: Run) -> Path | None:
    """The bundle of a report, where it is."""
    bundle = found.path.with_name(found.path.name.removesuffix(REPORT))
    return bundle if bundle != found.path and bundle.is_file() else None

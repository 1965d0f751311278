"""`ptq4snn report`: a finished run as one HTML page, from its JSON alone. Does not import torch.

Where the bundle is, it is read for the ways out of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ptq4snn.cli.ways import ways_beside
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import require
from ptq4snn.files import check_target
from ptq4snn.report.drawing import converter, figure_spec, write_figure
from ptq4snn.report.figures import FIGURES, figure_data, figure_panels
from ptq4snn.report.finished_run import Run, read_run, whole
from ptq4snn.report.page import write_page
from ptq4snn.schema.report_types import Report

__all__ = ["run"]

ENDINGS = (".svg", ".png")


def run(args: argparse.Namespace) -> None:
    found, added = read_run(args.run_of), [read_run(a) for a in args.add]
    for one in added:
        if one.kind == "report":
            raise PTQ4SNNError(
                f"--add {one.path} is a report: only files of compare and experiment are added"
            )
    page = Path(args.out) if args.out else found.path.with_suffix(".html")
    if page.suffix != ".html":
        raise PTQ4SNNError(f"--out {page} cannot be written: name an .html file")
    check_target(page, "--out")
    require("jinja2", "ptq4snn report")
    folder = None if args.figures is None else figures_folder(args.figures)
    with whole(found):
        report: Report = found.report if found.kind == "report" else {}
        others = added if found.kind == "report" else [found, *added]
        name = found.path.name.removesuffix(".json").removesuffix(".report")
        write_page(report, page, others, name, ways_beside(found, args) if report else None)
    drawn = [] if folder is None else write_figures([found, *added], folder)
    if args.json:
        print(json.dumps({"page": str(page), "figures": [str(f) for f in drawn]}, indent=2))
        return
    for file in (page, *drawn):
        print(f"wrote {file} ({file.stat().st_size:,} bytes)")


def figures_folder(name: str) -> Path:
    """Made if it is not there; what is missing to draw is told before the work."""
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise PTQ4SNNError(f"--figures {folder} is a file: name a folder")
    converter()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Every figure that a run has; those of added runs under the names of their files."""
    files = []
    for i, one in enumerate(runs):
        for figure in FIGURES.values():
            data = figure_data(one, figure.name)
            if data is None:
                continue
            with whole(one):
                spec = figure_spec(figure, figure_panels(figure, data))
            for ending in ENDINGS:
                files.append(folder / f"{f'{one.path.stem}.' if i else ''}{figure.name}{ending}")
                write_figure(spec, files[-1])
    return files

"""`ptq4snn figure`: a figure of the paper from a finished run, as a file. Does not import torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.report.drawing import check_target, figure_spec, write_figure
from ptq4snn.report.figures import FIGURES, figure_data, figure_panels, find_figure, missing
from ptq4snn.report.finished_run import read_run, whole

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    if args.name is None:
        list_figures(args.json)
        return
    figure = find_figure(args.name)
    if args.run_of is None:
        raise PTQ4SNNError(f"of which run? ptq4snn figure {figure.name} model.ptq")
    out = Path(args.out or f"{figure.name}.svg")
    if not args.json:
        check_target(out)
    found = read_run(args.run_of)
    with whole(found):
        data = figure_data(found, figure.name)
        if data is None:
            raise PTQ4SNNError(f"this run has no {figure.name}: {missing(found, figure.name)}")
        panels = figure_panels(figure, data, args.neuron)
        spec = figure_spec(figure, panels)
    if args.json:
        print(json.dumps(data, indent=2))
        return
    write_figure(spec, out)
    for panel in panels:
        print(f"{panel.title}. {panel.description}")
    print(f"wrote {out} ({out.stat().st_size:,} bytes)")


def list_figures(as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": f.name, "shows": f.line} for f in FIGURES.values()]))
        return
    width = max(map(len, FIGURES))
    for f in FIGURES.values():
        print(f"{f.name:<{width}}  {f.line}")

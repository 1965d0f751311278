"""A figure as a file: its panels side by side, in the light theme, with text fit for a paper's column."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ptq4snn import files
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import needed_by
from ptq4snn.report.figure import Figure
from ptq4snn.report.panel import Panel
from ptq4snn.report.theme import LIGHT, chart_config, paint

__all__ = ["FORMATS", "check_target", "converter", "figure_spec", "write_figure"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.4"  # as in assets/vega
FONT, SIZE = "Helvetica, Arial, sans-serif", 11
PIXELS = 3.0  # of a PNG for one of the drawing
FORMATS = (".svg", ".png", ".pdf", ".json")


def figure_spec(figure: Figure, panels: Sequence[Panel]) -> dict[str, Any]:
    """One Vega-Lite spec with its data; panels are lettered where there are several."""
    several = len(panels) > 1
    parts = []
    for i, p in enumerate(panels):
        letter = f"({chr(ord('a') + i % 26)}) " if several and figure.name != "segmentation" else ""
        parts.append({**p.drawn(), "title": f"{letter}{p.title}", "width": p.width, "height": p.height})
    columns = min(figure.columns, len({p.title for p in panels}))  # of pictures as many as there are kinds
    legends = "shared" if figure.one_legend else "independent"
    spec = {
        "$schema": SCHEMA,
        "description": " ".join(p.description for p in panels),
        "concat": parts,
        "columns": columns,
        "spacing": 24,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), legends)},
        "config": {**chart_config(LIGHT, FONT, SIZE, legend="bottom"), "background": "#ffffff", "padding": 6},
    }
    painted: dict[str, Any] = paint(spec, LIGHT)
    return painted


def check_target(path: Path) -> None:
    """A file that cannot be made must not cost the drawing."""
    if path.suffix not in FORMATS:
        raise PTQ4SNNError(f"{path} is no figure: its name must end with {', '.join(FORMATS)}")
    files.check_target(path)
    if path.suffix != ".json":
        converter()


def write_figure(spec: dict[str, Any], path: Path) -> None:
    """By the ending of the name: .svg, .png, .pdf, or .json for the spec itself."""
    if path.suffix == ".json":
        files.write_whole(path, json.dumps(spec, indent=1) + "\n")
        return
    convert = converter()
    makers: dict[str, Callable[[], bytes | str]] = {
        ".svg": lambda: convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[]),
        ".png": lambda: convert.vegalite_to_png(
            spec, vl_version=VEGA_LITE, scale=PIXELS, allowed_base_urls=[]
        ),
        ".pdf": lambda: convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE, allowed_base_urls=[]),
    }
    files.write_whole(path, makers[path.suffix]())


def converter() -> ModuleType:
    with needed_by("a figure as .svg, .png or .pdf", "or write .json"):
        import vl_convert
    return vl_convert

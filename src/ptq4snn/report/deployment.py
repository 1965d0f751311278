"""Where a bundle can go: which exporters take it, and which targets it fits; plain values to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptq4snn.report.tables import Cell, Table

__all__ = ["Deployment", "Way", "deployment_lines", "deployment_tables"]


@dataclass(frozen=True)
class Way:
    """An exporter or a target: whether it takes the bundle, and what is to be known of it."""

    name: str
    works: bool
    text: str = ""


@dataclass(frozen=True)
class Deployment:
    exports: Sequence[Way]  # none without an integer program
    targets: Sequence[Way]


def deployment_lines(found: Deployment, bundle: str) -> list[str]:
    """The end of a summary."""
    if not found.exports:
        return ["", "export: none, for there is no integer program"]
    lines = ["", "export"]
    for way in found.exports:
        answer = "yes" if way.works else "no"
        lines.append(f"  {way.name:<5} {answer}{f': {way.text}' if way.text else ''}")
    groups = {yes: ", ".join(t.name for t in found.targets if t.works is yes) for yes in (True, False)}
    lines.append(f"fits   {groups[True] or 'none of the targets'}")
    lines += [f"not    {groups[False]}"] if groups[False] else []
    return [*lines, f"       ptq4snn check {bundle} --target NAME tells why, and which recipe would fit"]


def deployment_tables(found: Deployment) -> list[Table]:
    """The same on the page."""
    names = {"c": "C99", "onnx": "ONNX", "nir": "NIR"}
    exports = [
        [Cell(names.get(w.name, w.name)), Cell("yes" if w.works else "no"), Cell(w.text)]
        for w in found.exports
    ]
    targets = [[Cell(t.name), Cell("yes" if t.works else "no"), Cell(t.text)] for t in found.targets]
    return [
        Table(
            "What it can be exported to",
            ("Export", "Possible", "What is to be known"),
            exports,
            3,
            prose=True,
        ),
        Table("Targets that it fits", ("Target", "Fits", "What is broken"), targets, 3, prose=True),
    ]

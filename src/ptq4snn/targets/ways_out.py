"""Where a bundle can go: the exporters that take it, by trying them, and the targets that it fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.export import generate
from ptq4snn.network.plan import Plan
from ptq4snn.report.deployment import Deployment, Way
from ptq4snn.runtime.demand import Limits
from ptq4snn.runtime.loading import read_contents
from ptq4snn.runtime.parameters import Model
from ptq4snn.targets.chips import CHIPS
from ptq4snn.targets.target import Target
from ptq4snn.targets.verdict import check_model

__all__ = ["ways_of", "ways_out"]

Export = Callable[[Plan, Model], str]  # what is to be known of it


def ways_out(bundle: Path, limits: Limits | None = None) -> Deployment | None:
    """Of a bundle; None of a file that is none, or that asks for more than the limits."""
    try:
        found = read_contents(bundle, limits or Limits())
    except PTQ4SNNError:
        return None
    return ways_of(found.plan, found.model)


def ways_of(plan: Plan, model: Model | None) -> Deployment:
    """Of a plan and its program."""
    if model is None:
        return Deployment((), ())
    exports = tuple(_tried(name, export, plan, model) for name, export in EXPORTS.items())
    return Deployment(exports, tuple(_fit(plan, model, chip) for chip in CHIPS.values()))


def _tried(name: str, export: Export, plan: Plan, model: Model) -> Way:
    try:
        return Way(name, True, export(plan, model))
    except PTQ4SNNError as why:
        return Way(name, False, str(why))


def _fit(plan: Plan, model: Model, target: Target) -> Way:
    """What is broken first, and whether a recipe mends all."""
    try:
        verdict = check_model(plan, model, target)
    except PTQ4SNNError as why:  # a package that it takes to tell
        return Way(target.name, False, str(why))
    broken = verdict.broken
    if not broken:
        return Way(target.name, True)
    where = f"'{broken[0].place}': " if broken[0].place else ""
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    mended = "" if verdict.beyond else "; another recipe fits"
    return Way(target.name, False, f"{where}{broken[0].text}{more}{mended}")


def _c(_: Plan, model: Model) -> str:
    figures = generate(model, "network").figures
    return f"about {figures.flash:,} bytes of flash, {figures.ram:,} of RAM"


def _onnx(_: Plan, model: Model) -> str:
    from ptq4snn.export.onnx_form.export import onnx_model  # here, because it needs onnx

    onnx_model(model)
    return ""


def _nir(plan: Plan, model: Model) -> str:
    from ptq4snn.export.nir_form.export import nodes_of  # here, because it needs nir

    nodes_of(plan, model)
    return ""


EXPORTS: dict[str, Export] = {"c": _c, "onnx": _onnx, "nir": _nir}

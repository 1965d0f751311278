"""Where a bundle can go: the exporters that take it, by trying them, and the targets that it fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.export.c99.export import generate
from ptq4snn.runtime.loading import read_contents
from ptq4snn.runtime.parameters import Model
from ptq4snn.targets.chips import CHIPS
from ptq4snn.targets.verdict import check_contents

__all__ = ["ways_out"]

Export = Callable[[Path, Model], str]  # what is to be known of it


def ways_out(bundle: Path) -> list[str]:
    """Lines of a summary; none of a file that is no bundle."""
    try:
        found = read_contents(bundle)
    except PTQ4SNNError:
        return []
    if found.model is None:
        return ["", "export: none, for there is no integer program"]
    lines = [f"  {name:<5} {_tried(export, bundle, found.model)}" for name, export in EXPORTS.items()]
    fits = {chip.name: check_contents(found, chip).fits for chip in CHIPS.values()}
    groups = {yes: ", ".join(name for name, fit in fits.items() if fit is yes) for yes in (True, False)}
    lines += [f"fits   {groups[True] or 'none of the targets'}", f"not    {groups[False]}"]
    if not groups[False]:
        del lines[-1]
    told = f"ptq4snn check {bundle.name} --target NAME tells why, and which recipe would fit"
    return ["", "export", *lines, f"       {told}"]


def _tried(export: Export, bundle: Path, model: Model) -> str:
    try:
        return export(bundle, model)
    except PTQ4SNNError as why:
        return f"no: {why}"


def _c(_: Path, model: Model) -> str:
    figures = generate(model, "network").figures
    return f"yes: about {figures.flash:,} bytes of flash, {figures.ram:,} of RAM"


def _onnx(_: Path, model: Model) -> str:
    from ptq4snn.export.onnx_form.export import onnx_model  # here, because it needs onnx

    onnx_model(model)
    return "yes"


def _nir(bundle: Path, _: Model) -> str:
    from ptq4snn.export.nir_form.export import nir_graph  # here, because it needs nir

    nir_graph(bundle)
    return "yes"


EXPORTS: dict[str, Export] = {"c": _c, "onnx": _onnx, "nir": _nir}

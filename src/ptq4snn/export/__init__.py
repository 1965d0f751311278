"""Ways out of a bundle, without torch: the integer program as something else runs it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptq4snn.export.c99.export import CSource, c
    from ptq4snn.export.nir_form.export import bundle_of, nir
    from ptq4snn.export.onnx_form.export import onnx

__all__ = ["CSource", "bundle_of", "c", "nir", "onnx"]

_HOME = {
    "c": "ptq4snn.export.c99.export",
    "CSource": "ptq4snn.export.c99.export",
    "nir": "ptq4snn.export.nir_form.export",
    "bundle_of": "ptq4snn.export.nir_form.export",
    "onnx": "ptq4snn.export.onnx_form.export",
}


def __getattr__(name: str) -> Any:
    """Each way out needs packages of its own: imported on its first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'ptq4snn.export' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

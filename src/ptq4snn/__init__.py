"""Joint post-training quantization of the weights and membrane states of trained spiking neural networks.

    q = ptq4snn.quantize(model, samples, recipe="w4m4")
    q(x); q.summary(); q.save("model.ptq")
    ptq4snn.runtime.load("model.ptq")(x)  # integers, without torch

Names are resolved when first used, so that `import ptq4snn` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptq4snn.extras import needed_by

if TYPE_CHECKING:
    from ptq4snn import export, runtime
    from ptq4snn.api import evaluate, inspect, load, quantize
    from ptq4snn.interchange.nir_reading import from_nir
    from ptq4snn.modules.quantized import QuantizedModel
    from ptq4snn.recipe import Recipe

__all__ = [
    "QuantizedModel", "Recipe", "__version__", "evaluate", "export", "from_nir", "inspect", "load",
    "quantize", "runtime",
]  # fmt: skip

__version__ = "0.1.0"

_HOME = {
    "quantize": "ptq4snn.api",
    "load": "ptq4snn.api",
    "inspect": "ptq4snn.api",
    "evaluate": "ptq4snn.api",
    "from_nir": "ptq4snn.interchange.nir_reading",
    "QuantizedModel": "ptq4snn.modules.quantized",
    "Recipe": "ptq4snn.recipe",
}


def __getattr__(name: str) -> Any:
    """Import the home of a public name on its first use and keep the name here."""
    if name in ("runtime", "export"):
        return import_module(f"ptq4snn.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'ptq4snn' has no attribute {name!r}")
    with needed_by(f"ptq4snn.{name}"):
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

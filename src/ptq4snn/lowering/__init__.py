"""A quantized model's forward pass, turned into the integer program of `runtime/program.py`."""

from __future__ import annotations

from ptq4snn.lowering.lower import lower

__all__ = ["lower"]

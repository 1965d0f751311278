"""Weights from files: safetensors, and what torch.save wrote. Never runs code of the file."""

from __future__ import annotations

from ptq4snn.checkpoint.load_checkpoint import Loaded, load_checkpoint

__all__ = ["Loaded", "load_checkpoint"]

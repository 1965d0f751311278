"""Where in the model's own code an operation stands: the place of a call, found by the frames above it.

A place is the chain of instructions from the forward of the module down to the call. It is the same in every
turn of a loop and for any number of time steps. Places are numbered in the order in which they are first run,
which is the same on another machine and with another version of Python.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

__all__ = ["Places", "innermost_module", "is_watched"]

WATCHED = {
    "add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__rsub__", "__isub__",
    "mul", "mul_", "__mul__", "__rmul__", "__imul__", "div", "div_", "__truediv__", "__rdiv__", "neg",
    "linear", "conv1d", "conv2d", "conv3d", "matmul", "__matmul__", "mm", "softmax", "log_softmax", "argmax",
}  # fmt: skip
MODULE_CALLS = nn.modules.module.__file__
OWN, TORCH = str(Path(__file__).parent), str(Path(torch.__file__).parent)


def is_watched(func: Any) -> bool:
    """Whether a call of it may be edited."""
    return getattr(func, "__name__", "") in WATCHED


def _frames() -> tuple[list[FrameType], FrameType | None]:
    """Frames of the model's code from the running call up, and that of the module call they are in."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == MODULE_CALLS:
            return found, frame
        if not file.startswith((OWN, TORCH)):
            found.append(frame)
        frame = frame.f_back
    return found, None


def innermost_module() -> nn.Module | None:
    """The module whose forward is running."""
    _, call = _frames()
    module = None if call is None else call.f_locals.get("self")
    return module if isinstance(module, nn.Module) else None


class Places:
    """Numbers of the places in one module's forward. Copies begin anew: they meet them in the same order."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def number(self) -> int:
        """That of the call which is running."""
        key = tuple((f.f_code, f.f_lasti) for f in _frames()[0])
        return self.known.setdefault(key, len(self.known))

    def __deepcopy__(self, memo: dict[int, Any]) -> Places:
        return Places()

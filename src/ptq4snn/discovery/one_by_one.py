"""Convolutions in float64, one image at a time: torch copies the windows of all images that it is given,
several times what they take themselves. In float32 oneDNN needs no such copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["OneByOne"]

AXES: dict[Any, int] = {torch.conv1d: 3, torch.conv2d: 4, torch.conv3d: 5}  # of a batch


class OneByOne(TorchFunctionMode):
    """Inside, without gradients; the values are the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        x = args[0] if args else None
        if func not in AXES or not isinstance(x, Tensor) or torch.is_grad_enabled():
            return func(*args, **kwargs)
        if x.dtype != torch.float64 or x.dim() != AXES[func] or len(x) < 2:
            return func(*args, **kwargs)
        out = x
        for i, image in enumerate(x.split(1)):
            y: Tensor = func(image, *args[1:], **kwargs)
            out = y.new_empty(len(x), *y.shape[1:]) if i == 0 else out
            out[i] = y[0]
        return out

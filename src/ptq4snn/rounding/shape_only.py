"""Tensors without values: what a model computes of them has a shape and costs nothing.

They stand for everything outside a unit that does not reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["ShapeOnly", "shape_only"]


class ShapeOnly(Tensor):
    """Lives on the meta device, and so does whatever is computed of it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func.__name__ != "__get__":  # attributes such as shape need no care
                args, kwargs = _each(_shadow, args), _each(_shadow, kwargs or {})
            return _each(_wrap, func(*args, **(kwargs or {})))


def shape_only(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta").as_subclass(ShapeOnly)


def _each(change: Callable[[Tensor], Tensor], x: Any) -> Any:
    """`change` of every tensor in plain containers."""
    if isinstance(x, Tensor):
        return change(x)
    if type(x) in (tuple, list):
        return type(x)(_each(change, i) for i in x)
    return {k: _each(change, v) for k, v in x.items()} if type(x) is dict else x


def _shadow(x: Tensor) -> Tensor:
    """A tensor's shape and type."""
    return x.as_subclass(Tensor) if type(x) is ShapeOnly else x.detach().to("meta")


def _wrap(x: Tensor) -> Tensor:
    return x.as_subclass(ShapeOnly) if x.is_meta else x

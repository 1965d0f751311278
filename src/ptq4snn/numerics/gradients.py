"""Convolutions whose gradients may be asked for, kept away from two faults of oneDNN 3.12 (torch 2.13).

1. On CPUs with AVX2 and without AVX-512, oneDNN computes the weights' gradient of a convolution where

    kernel 1 x 1,  stride > 1,  no padding,  one group,  Cin < 8,  input or weight channels-last

by copying every stride-th pixel into a scratch buffer of OH * OW * Cin floats, row by row: but row r goes to
8 * r * OW instead of Cin * r * OW. From the second row on it writes past the buffer, by up to
(OH - 1) * OW * (8 - Cin) floats. One thread overwrites what lies behind ("corrupted double-linked list"),
several overwrite each other's pixels and the gradient is wrong. A transposed one has it with Cout < 8.

2. With AVX-512, the weights' gradient of a 3-D convolution whose depth has padding > stride > 1 is wrong or
written past its buffer, for many of the depths that are no larger than the kernel.

Other shapes were tried with guarded buffers and against float64 (kernels, groups, paddings, dimensions, the
inputs' gradient; AVX-512, AVX2, SSE4.1) and are right.

With `safe_gradients()` around the forward pass the pixels of 1 are picked by a slice and the convolution has
stride 1, the depth of 2 is padded before: the same sums, whatever the memory format, also where torch.compile
chooses another one. It is done on every CPU, so that all compute alike. No built-in network has such a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["safe_gradients"]

VECTOR = 8  # floats of an AVX2 register: how far apart oneDNN takes the pixels to be


class safe_gradients(TorchFunctionMode):
    """Context in which no convolution has a gradient that oneDNN computes with one of the faults above."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d:
            return _conv2d(*args, **kwargs)
        if func is torch.conv_transpose2d:
            return _conv_transpose2d(*args, **kwargs)
        if func is torch.conv3d:
            return _conv3d(*args, **kwargs)
        return func(*args, **kwargs)


def _each(x: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for every axis, from one each or one for all."""
    values = (x,) if isinstance(x, int) else tuple(x)
    return values if len(values) == axes else values * axes


def _overruns(weight: Tensor, stride: tuple[int, ...], padding: Any, groups: int) -> bool:
    """Whether fault 1 is reached; weight [Cout, Cin, kh, kw], of a transposed one [Cin, Cout, kh, kw]."""
    unpadded = padding == "valid" if isinstance(padding, str) else not any(_each(padding, 2))
    return (
        weight.dim() == 4
        and weight.shape[1] < VECTOR
        and tuple(weight.shape[2:]) == (1, 1)
        and stride != (1, 1)
        and unpadded
        and groups == 1
    )


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """sum_i W[o, i] x[i, s h, s w] of a 1 x 1 kernel, with the pixels picked first."""
    steps = _each(stride, 2)
    if not _overruns(weight, steps, padding, groups):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return torch.conv2d(input[..., :: steps[0], :: steps[1]], weight, bias)


def _conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Zeros between the pixels, and the bias everywhere, behind a convolution of stride 1."""
    steps = _each(stride, 2)
    if not _overruns(weight, steps, padding, groups):
        return torch.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    small = torch.conv_transpose2d(input, weight)
    sizes = [
        (n - 1) * s + 1 + p for n, s, p in zip(small.shape[-2:], steps, _each(output_padding, 2), strict=True)
    ]
    out = small.new_zeros(*small.shape[:-2], *sizes)
    out[..., :: steps[0], :: steps[1]] = small
    return out if bias is None else out + bias.view(-1, 1, 1)


def _conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The same with the zeros in front of and behind the first axis written out."""
    if not isinstance(padding, str):
        depth, *rest = _each(padding, 3)
        if depth > _each(stride, 3)[0] > 1:
            input, padding = F.pad(input, (0, 0, 0, 0, depth, depth)), (0, *rest)
    return torch.conv3d(input, weight, bias, stride, padding, dilation, groups)

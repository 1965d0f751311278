"""Weights to integers, nearest rounding: the scale of every output channel and Wq."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ptq4snn.numerics.grid import quantize
from ptq4snn.numerics.scales import row_blocks, weight_scales

__all__ = ["QuantWeight", "input_scales", "narrowed", "round_nearest"]


@dataclass(frozen=True)
class QuantWeight:
    """W_c ~ scales[c] * integers[c]; with bits None the "integers" are W / scale, unrounded."""

    bits: int | None
    scales: Tensor  # [C] float64
    kept: Tensor  # like W

    @classmethod
    def of(cls, bits: int | None, scales: Tensor, integers: Tensor) -> QuantWeight:
        return cls(bits, scales, narrowed(integers))

    @property
    def integers(self) -> Tensor:
        """Like W, float64, made when it is asked for."""
        return self.kept.double()


def narrowed(x: Tensor) -> Tensor:
    """x in eight bits a number where these hold it, else x itself; a zero has no sign any more."""
    narrow = x.to(torch.int8)
    return narrow if torch.equal(narrow.to(x.dtype), x) else x


def round_nearest(
    weight: Tensor, bits: int | None, floor: Tensor | float = 0.0, per_tensor: bool = False,
    scales: Tensor | None = None,
) -> QuantWeight:  # fmt: skip
    """Quantize weight [C, ...]; without `scales` they are searched (numerics/scales.py)."""
    if scales is None:
        scales = weight_scales(weight, bits or 8, floor, per_tensor)
    s = scales.view(-1, *[1] * (weight.dim() - 1))
    if bits is None:
        return QuantWeight.of(bits, scales, torch.as_tensor(weight.double() / s))
    blocks = zip(row_blocks(weight, weight), row_blocks(s, weight), strict=True)
    return QuantWeight(bits, scales, torch.cat([narrowed(quantize(w.double(), r, bits)) for w, r in blocks]))


def input_scales(weight: Tensor, s: Tensor) -> Tensor:
    """The input's scales [inputs], or one for all, shaped to multiply weight [C, inputs / groups, ...]."""
    if len(s) == 1:
        return s
    inputs = weight.shape[1]  # a grouped convolution sees a part of the channels in every group
    groups = len(s) // inputs
    rows = s.view(groups, inputs).repeat_interleave(weight.shape[0] // groups, 0)
    return rows.view(weight.shape[0], inputs, *[1] * (weight.dim() - 2))

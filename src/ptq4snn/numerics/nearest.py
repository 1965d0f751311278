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
    odd: bool = False  # its levels (numerics/grid.py)

    @classmethod
    def of(cls, bits: int | None, scales: Tensor, integers: Tensor, odd: bool = False) -> QuantWeight:
        return cls(bits, scales, narrowed(integers), odd)

    @property
    def width(self) -> int:
        """Bits of two's complement that hold the integers."""
        return (self.bits or 0) + self.odd

    def with_integers(self, integers: Tensor) -> QuantWeight:
        """Others for the same scales."""
        return QuantWeight.of(self.bits, self.scales, integers, self.odd)

    def with_scales(self, weight: Tensor, scales: Tensor) -> QuantWeight:
        """The nearest integers of the weight for other scales [C]."""
        return round_nearest(weight, self.bits, scales=scales, odd=self.odd)

    def error(self, weight: Tensor) -> Tensor:
        """Squared error [C]."""
        s = self.scales.view(-1, *[1] * (weight.dim() - 1))
        return (self.integers * s - weight).square().flatten(1).sum(1)

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
    scales: Tensor | None = None, odd: bool = False,
) -> QuantWeight:  # fmt: skip
    """Quantize weight [C, ...]; without `scales` they are searched (numerics/scales.py)."""
    if scales is None:
        scales = weight_scales(weight, bits or 8, floor, per_tensor, odd)
    s = scales.view(-1, *[1] * (weight.dim() - 1))
    if bits is None:
        return QuantWeight.of(bits, scales, torch.as_tensor(weight.double() / s))
    blocks = zip(row_blocks(weight, weight), row_blocks(s, weight), strict=True)
    integers = torch.cat([narrowed(quantize(w.double(), r, bits, odd)) for w, r in blocks])
    return QuantWeight(bits, scales, integers, odd)


def input_scales(weight: Tensor, s: Tensor) -> Tensor:
    """The input's scales [inputs], or one for all, shaped to multiply weight [C, inputs / groups, ...]."""
    if len(s) == 1:
        return s
    inputs = weight.shape[1]  # a grouped convolution sees a part of the channels in every group
    groups = len(s) // inputs
    rows = s.view(groups, inputs).repeat_interleave(weight.shape[0] // groups, 0)
    return rows.view(weight.shape[0], inputs, *[1] * (weight.dim() - 2))

"""What is left of a BatchNorm behind a max-pool whose gain is negative somewhere.

    g max(y) + b  =  sign(g) max(|g| y) + b

|g| is folded into the projection; the sign and the shift stay where the BatchNorm was. For a negative gain
this is the minimum of the negated current.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.discovery.editing import ChannelAffine

__all__ = ["Mirror", "norm_axis"]


class Mirror(nn.Module):
    """y -> sign y + shift, one sign and shift a channel; integers stay integers."""

    sign: Tensor
    shift: Tensor

    def __init__(self, sign: Tensor, shift: Tensor, axis: int) -> None:
        super().__init__()
        shape = [-1, *[1] * (-axis - 1)]
        self.register_buffer("sign", sign.double().view(shape), persistent=False)
        self.register_buffer("shift", shift.double().view(shape), persistent=False)

    def forward(self, y: Tensor) -> Tensor:
        return torch.addcmul(self.shift.to(y.dtype), y, self.sign.to(y.dtype))


def norm_axis(norm: nn.Module) -> int:
    """Channel axis of a BatchNorm's input behind a pool, counted from the end."""
    if isinstance(norm, ChannelAffine):
        return norm.axis
    ranks = {nn.BatchNorm1d: -2, nn.BatchNorm2d: -3, nn.BatchNorm3d: -4}
    return next((axis for kind, axis in ranks.items() if isinstance(norm, kind)), -3)

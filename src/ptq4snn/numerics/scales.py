"""The one definition of a weight scale: max|W_c| on the last level, shrunk to the least squared error."""

from __future__ import annotations

import torch
from torch import Tensor

from ptq4snn.numerics.grid import largest, signed_range

__all__ = ["SHRINKS", "row_blocks", "shrink_errors", "weight_scales"]

BLOCK, ROWS = 2**17, 64  # numbers of a weight that are in float64 at a time, and rows at least
SHRINKS = torch.arange(40, 101, dtype=torch.float64) / 100  # linspace rounds as the CPU does


def full_scales(weight: Tensor, bits: int, floor: Tensor | float = 0.0, odd: bool = False) -> Tensor:
    """Scales [C] at which nothing of weight [C, K] is clipped."""
    s = torch.maximum(weight.amax(1), -weight.amin(1)).double() / largest(bits, odd)
    tiny = torch.finfo(torch.float32).tiny
    return torch.maximum(s, torch.as_tensor(floor, dtype=torch.float64, device=s.device)).clamp_min(tiny)


def shrink_errors(
    weight: Tensor, bits: int, full: Tensor, floor: Tensor | float = 0.0, odd: bool = False
) -> Tensor:
    """Squared error [61, C] of weight [C, K] for every shrink factor of its full scales [C]."""
    least = torch.as_tensor(floor, dtype=torch.float64, device=full.device).expand_as(full)
    lo, hi = signed_range(bits)
    found = []
    for w, top, low in zip(*(row_blocks(x, weight) for x in (weight.detach(), full, least)), strict=True):
        w, errors = w.double(), []
        apart = torch.empty_like(w)
        for f in SHRINKS.to(w.device):
            s = torch.maximum(top * f, low)[:, None]
            torch.div(w, s, out=apart)
            if odd:
                apart.sub_(1).div_(2)
            apart.round_().clamp_(lo, hi)
            if odd:
                apart.mul_(2).add_(1)
            errors.append(apart.mul_(s).sub_(w).square_().sum(1))
        found.append(torch.stack(errors))
    return torch.cat(found, 1)


def row_blocks(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """x [C, ...] in blocks of rows that are not many numbers of weight [C, ...]: a weight may be large, and
    each of its rows is rounded by itself."""
    found: tuple[Tensor, ...] = x.split(max(ROWS, BLOCK // max(1, weight[0].numel())))
    return found


def weight_scales(
    weight: Tensor, bits: int, floor: Tensor | float = 0.0, per_tensor: bool = False, odd: bool = False
) -> Tensor:
    """Scales [C] (float64) of weight [C, ...]; `floor` keeps channels of almost no weight alive."""
    w = weight.reshape(1, -1) if per_tensor else weight.flatten(1)
    if per_tensor:  # one scale that suits every channel
        floor = torch.as_tensor(floor).max()
    full = full_scales(w, bits, floor, odd)
    errors = shrink_errors(w, bits, full, floor, odd)
    best = len(SHRINKS) - 1 - errors.flip(0).argmin(0)  # of equal errors the largest scale
    s = full * SHRINKS.to(full.device)[best]
    if per_tensor:
        s = s.expand(weight.shape[0])
    return torch.maximum(s, torch.as_tensor(floor, dtype=torch.float64, device=s.device)).clone()

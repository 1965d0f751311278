"""Random crops, flips and erased squares of a batch: images with class numbers or maps, event frames."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.data.samples import VOID

__all__ = ["augment"]


def augment(
    x: Tensor, y: Tensor, kind: str, margin: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """x [B, ..., H, W] and y [B] or [B, H, W], each sample in its own way, maps with images."""
    if kind == "none":
        return x, y
    flip = torch.rand(len(x), generator=generator) < 0.5 if "flip" in kind else None
    offsets = torch.randint(0, 2 * margin + 1, (len(x), 2), generator=generator)
    maps = y.dim() == 3
    x = moved(x, offsets, margin, flip, 0.0)
    if kind.endswith("erase"):
        x = erased(x, generator)
    return x, moved(y, offsets, margin, flip, VOID) if maps else y


def moved(x: Tensor, offsets: Tensor, margin: int, flip: Tensor | None, fill: float) -> Tensor:
    """Each sample cropped at its offset from the padded one, and mirrored where `flip` says."""
    height, width = x.shape[-2:]
    rows = offsets[:, :1] + torch.arange(height)  # [B, H]
    columns = offsets[:, 1:] + torch.arange(width)
    if flip is not None:
        columns = torch.where(flip.unsqueeze(1), columns.flip(1), columns)
    padded = F.pad(x, [margin] * 4, value=fill)
    flat = padded.flatten(1, -3) if x.dim() > 3 else padded.unsqueeze(1)  # [B, N, H', W']
    batch = torch.arange(len(x)).view(-1, 1, 1, 1)
    maps = torch.arange(flat.shape[1]).view(1, -1, 1, 1)
    return flat[batch, maps, rows.view(len(x), 1, -1, 1), columns.view(len(x), 1, 1, -1)].view(x.shape)


def erased(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each sample with a square of a quarter of its shorter side set to 0, somewhere inside (cutout)."""
    size = max(min(x.shape[-2:]) // 4, 1)
    hit = [
        _stretch(torch.randint(0, side - size + 1, (len(x), 1), generator=generator), size, side)
        for side in x.shape[-2:]
    ]  # [B, H], [B, W]
    square = hit[0].unsqueeze(2) & hit[1].unsqueeze(1)
    return x.masked_fill(square.view(len(x), *[1] * (x.dim() - 3), *x.shape[-2:]), 0.0)


def _stretch(first: Tensor, size: int, side: int) -> Tensor:
    """Which of 0 .. side - 1 are in first .. first + size - 1; first [B, 1]."""
    place = torch.arange(side)
    return (place >= first) & (place < first + size)

"""Losses: cross-entropy of classes, or of the pixels of a label map."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from ptq4snn.data.samples import VOID, check_labels, whole_labels

__all__ = ["class_weights", "loss"]


def loss(logits: Tensor, y: Tensor, smoothing: float, weights: Tensor | None = None) -> Tensor:
    """logits [B, classes] and y [B], or logits [B, classes, h, w] and y [B, H, W] with VOID."""
    if y.dim() == 3 and logits.shape[-2:] != y.shape[-2:]:
        logits = F.interpolate(logits, y.shape[-2:], mode="bilinear", align_corners=False)
    y = whole_labels(y)
    check_labels(y, logits.shape[1])
    ignored = VOID if y.dim() == 3 else -1  # class 255 of a thousand is not void
    return F.cross_entropy(logits, y, weights, ignore_index=ignored, label_smoothing=smoothing)


def class_weights(maps: Iterable[Tensor], classes: int) -> Tensor:
    """1 / sqrt(frequency) of every class, with mean 1: rare classes count, noise does not dominate."""
    counts = torch.zeros(classes, dtype=torch.int64)
    for y in map(whole_labels, maps):
        counts += torch.bincount(y[y != VOID].flatten(), minlength=classes)[:classes]
    weights = counts.clamp_min(1).double().rsqrt()
    return (weights / weights.mean()).float()

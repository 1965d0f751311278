"""What a segmentation makes of a few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ptq4snn.evaluation.segmentation_score import predict

__all__ = ["EXAMPLES", "Example", "Examples", "decisions", "is_map"]

EXAMPLES = 4


@dataclass(frozen=True)
class Example:
    """One sample as the model saw it, and the class of each of its pixels; None is not known."""

    x: Tensor  # [..., C, H, W]
    before: Tensor | None  # [H, W] of the float network
    after: Tensor  # [H, W] of the quantized one
    label: Tensor | None = None  # [H, W]


@dataclass(frozen=True)
class Examples:
    classes: int
    rows: tuple[Example, ...]


def is_map(logits: Tensor) -> bool:
    """Whether logits [B, classes, ...] decide over pixels."""
    return logits.dim() == 4 and logits.shape[2] * logits.shape[3] > 1


def decisions(logits: Tensor, size: Sequence[int], count: int = EXAMPLES) -> list[Tensor]:
    """The class of every pixel [H, W] of the first samples, at the input's size."""
    return [predict(one, size, size).cpu() for one in logits[:count].float()]

"""One evaluation pass that also tells which samples were classified right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.progress import Progress
from ptq4snn.schema.score_types import Paired
from ptq4snn.team import SOLO, Team

__all__ = ["pack", "score", "unpack"]


def score(
    model: nn.Module, batches: Any, batch_axis: int, limit: int | None, progress: Progress, team: Team = SOLO
) -> Paired:
    """The result of `evaluate`, and `right`: a hex string with a bit for each sample (None: no classes)."""
    right: list[Tensor] = []

    def note(logits: Tensor, y: Tensor) -> None:
        if y.dim() == 1:  # best as Accuracy ranks equal logits
            right.append((logits if logits.dim() == 1 else logits.argmax(1)) == y)

    result = evaluate(model, batches, batch_axis, progress, limit=limit, watch=note, team=team)
    return {**result, "right": pack(torch.cat(right)) if right else None}


def pack(right: Tensor) -> str:
    """Bools [n] as hex digits, eight to a byte, the first in the highest bit."""
    return np.packbits(right.numpy()).tobytes().hex()


def unpack(text: str, count: int) -> Tensor:
    """The bools [count] of `pack`."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    return torch.from_numpy(bits[:count].astype(bool))

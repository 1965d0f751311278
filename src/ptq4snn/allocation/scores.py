"""Channel scores a_c = beta r^_c + (1 - beta) g^_c from firing rates and sensitivities."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["min_max", "scores"]

EPSILON = 1e-12


def min_max(x: Tensor) -> Tensor:
    """(x - min) / (max - min + eps) over all eligible channels."""
    return (x - x.min()) / (x.max() - x.min() + EPSILON)


def scores(rate: Tensor, sensitivity: Tensor, beta: float) -> Tensor:
    """a_c [n]."""
    return beta * min_max(rate.double()) + (1 - beta) * min_max(torch.as_tensor(sensitivity).double())

"""Grid search of (beta, P) on held-out samples, without labels: KL to the float model, then agreement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Trial", "grid_search"]


@dataclass(frozen=True)
class Trial:
    """One allocation and how near its network came to the float one on the held-out samples."""

    beta: float | None  # None: not by score
    percentile: float | None
    kl: float | None  # None: it was given, not tried
    agreement: float | None
    average_bits: float
    name: str = "mpba"

    def cost(self) -> tuple[float, float]:
        """What is compared: the divergence, then the agreement. Logits that overflow are the worst."""
        assert self.kl is not None and self.agreement is not None
        return (self.kl if self.kl == self.kl else float("inf"), -self.agreement)


def grid_search(
    points: Iterable[tuple[float, float]],
    allocation: Callable[[float, float], tuple[Tensor, float]],
    judge: Callable[[Tensor], tuple[float, float]],
) -> tuple[Tensor, Trial, list[Trial]]:
    """Best bits, their trial and all trials. Allocations that come out alike are judged once."""
    seen: dict[bytes, tuple[float, float]] = {}
    best: tuple[Tensor, Trial] | None = None
    trials = []
    for beta, percentile in points:
        bits, average = allocation(beta, percentile)
        key = bits.to(torch.uint8).numpy().tobytes()
        if key not in seen:
            seen[key] = judge(bits)
        trial = Trial(beta, percentile, *seen[key], average)
        trials.append(trial)
        if best is None or trial.cost() < best[1].cost():
            best = (bits, trial)
    assert best is not None
    return *best, trials

"""Choosing between networks without labels: by their outputs where these tell, else by the spikes that flip.

On a hundred held-out samples the outputs of two good allocations differ by noise: spiking networks are
chaotic, and which one is nearer to the float network is another one on the next hundred. The flips that each
neuron causes by itself are counted over many thousands of trajectories and hardly depend on the samples. So
the outputs rule out what is clearly worse than the best, and of the rest the one with the fewest flips wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Trial", "Verdict", "grid_search", "preferred"]

CLEARLY = 2.0  # standard errors of a paired difference


@dataclass(frozen=True)
class Verdict:
    """How near a network came to the float one."""

    kl: float  # to the float model's outputs, mean over the held-out samples
    agreement: float  # share of equal decisions
    flips: float  # replay's cost of a state, mean over the neurons
    apart: Tensor = field(repr=False, compare=False)  # [n] divergence of every held-out sample, tempered

    def is_clearly_behind(self, best: Verdict) -> bool:
        """Whether the outputs are farther away by more than the paired differences scatter."""
        d = self.apart - best.apart
        if not bool(torch.isfinite(d).all()):  # logits that overflow
            return True
        error = float(d.std(correction=0)) / math.sqrt(max(1, len(d) - 1))
        return float(d.mean()) > CLEARLY * error


def preferred(verdicts: Sequence[Verdict]) -> int:
    """The place of the verdict that wins; of equal ones the first."""

    def divergence(i: int) -> float:
        mean = float(verdicts[i].apart.mean())
        return mean if math.isfinite(mean) else math.inf

    best = min(range(len(verdicts)), key=divergence)
    alike = [i for i, v in enumerate(verdicts) if i == best or not v.is_clearly_behind(verdicts[best])]
    return min(alike, key=lambda i: (verdicts[i].flips, divergence(i), -verdicts[i].agreement))


@dataclass(frozen=True)
class Trial:
    """One allocation and how near its network came to the float one."""

    beta: float | None  # None: not by score
    percentile: float | None
    verdict: Verdict | None  # None: it was given, not tried
    average_bits: float
    name: str = "mpba"

    @property
    def kl(self) -> float | None:
        return None if self.verdict is None else self.verdict.kl

    @property
    def agreement(self) -> float | None:
        return None if self.verdict is None else self.verdict.agreement

    @property
    def flips(self) -> float | None:
        return None if self.verdict is None else self.verdict.flips


def grid_search(
    points: Iterable[tuple[float, float]],
    allocation: Callable[[float, float], tuple[Tensor, float]],
    judge: Callable[[Tensor], Verdict],
) -> tuple[Tensor, Trial, list[Trial]]:
    """Best bits, their trial and all trials. Allocations that come out alike are judged once."""
    seen: dict[bytes, Verdict] = {}
    found: list[tuple[Tensor, Trial]] = []
    verdicts = []
    for beta, percentile in points:
        bits, average = allocation(beta, percentile)
        key = bits.to(torch.uint8).numpy().tobytes()
        if key not in seen:
            seen[key] = judge(bits)
        verdicts.append(seen[key])
        found.append((bits, Trial(beta, percentile, seen[key], average)))
    bits, best = found[preferred(verdicts)]
    return bits, best, [trial for _, trial in found]

"""What a model must keep, and how well it is known that it does.

    agreement   share of samples on which both networks decide alike                >= the goal
    max_drop    accuracy of the quantized network >= that of the float one, on the same samples, - the goal

What must keep the goal is the estimate less one standard error. Of many models that are tried on the same
samples the luckiest would be taken otherwise: on 500 images a model that seemed to gain a point lost 2.6 on
others. So small drops need many samples to be told. Intervals of 95 %, 1.96 standard errors to each side:

    agreement   Wilson's of a share; the normal one of the samples' shares where samples are maps
    max_drop    of the paired difference, with one sample more of each kind of disagreement (Bonett and Price
                2012), so that it has a width even where no sample differs
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ptq4snn.recipe import Recipe

__all__ = ["Goal", "Outcome", "Quality"]

Z = 1.959963984540054  # 97.5 % quantile of the normal distribution
Measure = Literal["agreement", "accuracy"]


@dataclass(frozen=True)
class Outcome:
    """What a quantized network did on the samples that judge."""

    agree: Tensor  # [n] share of equal decisions; 0 or 1 where a sample has one
    right: Tensor | None = None  # [n] bool; None: no labels


@dataclass(frozen=True)
class Quality:
    """In per cent, with its 95 % interval."""

    value: float
    low: float
    high: float
    kept: bool

    def __str__(self) -> str:
        return f"{self.value:.2f} % ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Goal:
    """`asked` is a share in per cent, or a drop in points."""

    measure: Measure
    asked: float

    @classmethod
    def of(cls, recipe: Recipe) -> Goal:
        """Of a recipe that has one."""
        if recipe.agreement is not None:
            return cls("agreement", recipe.agreement)
        assert recipe.max_drop is not None
        return cls("accuracy", recipe.max_drop)

    def __str__(self) -> str:
        if self.measure == "agreement":
            return f"an agreement of {self.asked:g} %"
        return f"a drop of at most {self.asked:g} points"

    def limit(self, right: Tensor | None) -> float:
        """The least value in per cent; `right`: what the float network did."""
        if self.measure == "agreement":
            return self.asked
        assert right is not None
        return 100 * float(right.double().mean()) - self.asked

    def quality(self, found: Outcome, right: Tensor | None) -> Quality:
        """How well a network did beside the float one, of which `right` is known where there are labels."""
        if self.measure == "agreement":
            value, (low, high) = float(found.agree.double().mean()), _share(found.agree.double())
        else:
            assert found.right is not None and right is not None
            value = float(found.right.double().mean())
            start = float(right.double().mean())
            low, high = (min(1.0, max(0.0, start + end)) for end in _difference(found.right, right))
        error = (high - low) / (2 * Z)
        kept = 100 * (value - error) >= self.limit(right) - 1e-9
        return Quality(100 * value, 100 * low, 100 * high, kept)


def _share(values: Tensor) -> tuple[float, float]:
    """Of a mean of shares [n]."""
    n, p = len(values), float(values.mean())
    if bool(((values == 0) | (values == 1)).all()):
        middle, half = p + Z * Z / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
        return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)
    half = Z * float(values.std()) / math.sqrt(n) if n > 1 else 1.0
    return max(0.0, p - half), min(1.0, p + half)


def _difference(after: Tensor, before: Tensor) -> tuple[float, float]:
    """Of the mean of after - before, bools [n] of the same samples."""
    n = len(after) + 2
    won = (int((after & ~before).sum()) + 1) / n
    lost = (int((before & ~after).sum()) + 1) / n
    half = Z * math.sqrt((won + lost - (won - lost) ** 2) / n)
    return won - lost - half, won - lost + half

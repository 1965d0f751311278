"""A running average of the weights over the steps of a stage: a flatter place than its last step.

    kept = share * kept + (1 - share) * now        share = min(average, (1 + step) / (10 + step))

Statistics of the norms are averaged with the weights; the optimizer never sees the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["Average"]


class Average:
    """The average of a model's float weights and buffers, by their names; of share 0 there is none."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.model, self.share = model, share
        self.values = {name: value.clone() for name, value in self._now().items()} if share else {}

    def _now(self) -> dict[str, Tensor]:
        return {n: v.detach() for n, v in self.model.state_dict().items() if v.is_floating_point()}

    def update(self, step: int) -> None:
        """Behind step 0, 1, ... of the optimizer."""
        if self.share:
            now = self._now()
            weight = 1.0 - min(self.share, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.values.values()), [now[n] for n in self.values], weight)

    @torch.no_grad()
    def exchange(self) -> None:
        """The model takes the average, and what it had is kept here."""
        now = self._now()
        for name, kept in self.values.items():
            had = now[name].clone()
            now[name].copy_(kept)
            kept.copy_(had)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The model with the average inside of the context."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    @torch.no_grad()
    def load(self, values: dict[str, Tensor]) -> None:
        """Go on from the values of an earlier run."""
        for name, kept in self.values.items():
            kept.copy_(values[name])

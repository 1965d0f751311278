"""What a stage of training changes: the model, its optimizer and the average of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.training.average import Average
from ptq4snn.training.training_recipe import TrainingRecipe

__all__ = ["Pupil"]

MOMENTUM = 0.9


@dataclass(frozen=True)
class Pupil:
    """A model in training, and how it is called (compiled, or as it is)."""

    model: nn.Module
    forward: Callable[[Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    average: Average

    @classmethod
    def of(cls, model: nn.Module, recipe: TrainingRecipe, compiled: bool = False) -> Pupil:
        """At the beginning of a stage."""
        forward = torch.compile(model) if compiled else model
        return cls(model, forward, make_optimizer(model, recipe), Average(model, recipe.average))

    def states(self) -> dict[str, Any]:
        """What a killed run goes on from."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.values,
        }

    def go_on(self, states: dict[str, Any]) -> None:
        """From the states of an earlier run, the model's own apart."""
        self.optimizer.load_state_dict(states["optimizer"])
        self.average.load(states["average"])


def make_optimizer(model: nn.Module, recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """Weight decay on the weights of projections alone."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=MOMENTUM, nesterov=True)
    return torch.optim.AdamW(groups, lr=0.0)

"""The error of a membrane potential and its gradient, from the error of the current.

e[t] = leak keep[t-1] e[t-1] + gain (I~[t] - I[t])     keep: 0 where the float neuron fired and resets hard
loss = factor sum w e^2                                w: 1, or weights of the elements
dloss/dI~[t] = gain a[t]                               a[t] = 2 factor w[t] e[t] + leak keep[t] a[t+1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Potential", "potential_error"]


@dataclass(frozen=True)
class Potential:
    """The float neuron's currents, one tensor [B, ...] a step, and how it goes on from step to step."""

    currents: tuple[Tensor, ...]
    resets: tuple[Tensor | None, ...]  # bool: where nothing of e is left after the step; None: nowhere
    begins: tuple[bool, ...]  # steps that start a sequence
    leak: float | Tensor
    gain: float | Tensor
    weights: tuple[Tensor, ...] = ()  # none: all alike

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.currents, *self.resets, *self.weights) if t is not None)


class _PotentialError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, target: Potential, factor: float, *currents: Tensor) -> Tensor:
        errors: list[Tensor] = []
        total = currents[0].new_zeros(())
        for t, (x, expected) in enumerate(zip(currents, target.currents, strict=True)):
            error = (x - expected) * target.gain
            if not target.begins[t]:
                error += _kept(errors[-1], target, t - 1)
            errors.append(error)
            total += (error.square() * target.weights[t]).sum() if target.weights else error.square().sum()
        ctx.target, ctx.factor = target, factor
        ctx.save_for_backward(*errors)
        return total * factor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        target: Potential = ctx.target
        scale = 2 * ctx.factor * grads[0]
        found: list[Tensor] = []
        carried: Tensor | None = None
        for t in reversed(range(len(target.currents))):
            carried_in = _kept(carried, target, t) if carried is not None else None
            adjoint = ctx.saved_tensors[t] * scale
            if target.weights:
                adjoint *= target.weights[t]
            if carried_in is not None:
                adjoint += carried_in
            carried = None if target.begins[t] else adjoint
            found.append(adjoint * target.gain)
        return None, None, *reversed(found)


def _kept(x: Tensor, target: Potential, t: int) -> Tensor:
    """What of x passes from step t to the next."""
    resets = target.resets[t]
    return x * target.leak if resets is None else x * target.leak * ~resets


def potential_error(target: Potential, currents: Sequence[Tensor], factor: float) -> Tensor:
    """factor * sum w e^2 over all steps, differentiable in the currents."""
    loss: Tensor = _PotentialError.apply(target, factor, *currents)  # type: ignore[no-untyped-call]
    return loss

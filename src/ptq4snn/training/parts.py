"""A batch in parts, each normalised by itself, that processes share.

    gradient = mean_i dL_i / dw         running statistics = mean_i of those that part i leaves

Both means are taken over the parts in their order: they depend on how many parts there are, never on how many
processes had them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.team import Team

__all__ = ["gradients_in_parts"]

Loss = Callable[[Tensor, Tensor], Tensor]  # of inputs and labels


def gradients_in_parts(
    model: nn.Module, loss: Loss, batch: tuple[Tensor, Tensor], parts: int, seed: int, team: Team
) -> float:
    """Put the batch's gradients into the parameters and its statistics into the buffers; the mean loss."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    before = [b.clone() for b in buffers]
    pieces = list(zip(batch[0].chunk(parts), batch[1].chunk(parts), strict=True))

    def one(number: int) -> tuple[float, list[Tensor | None], list[Tensor]]:
        for b, old in zip(buffers, before, strict=True):
            b.copy_(old)
        reset_neurons(model)
        torch.manual_seed(seed + number)  # dropout
        error = loss(*pieces[number])
        grads = torch.autograd.grad(error, parameters, allow_unused=True)
        return float(error.detach()), list(grads), [b.clone() for b in buffers]

    found = team.map(one, range(len(pieces)), "gradients")
    for p, grads in zip(parameters, zip(*(g for _, g, _ in found), strict=True), strict=True):
        known = tuple(g for g in grads if g is not None)  # of a parameter that is not used none
        p.grad = _mean(known) if known else None
    with torch.no_grad():
        for b, values in zip(buffers, zip(*(v for _, _, v in found), strict=True), strict=True):
            b.copy_(_mean(values))
    return sum(error for error, _, _ in found) / len(found)


def _mean(values: tuple[Tensor, ...]) -> Tensor:
    return sum(values[1:], values[0]) / len(values)

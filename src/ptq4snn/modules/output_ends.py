"""Softmax, log-softmax and argmax behind decoded outputs, in torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ptq4snn.modules.carrier import tracked
from ptq4snn.numerics.finishing import finished

__all__ = ["finish", "unfinished"]

Then = tuple[tuple[str, int], ...]


def finish(x: Tensor, then: Then) -> Tensor:
    """x behind (what, axis) in turn, with the runtime's bits; where a gradient comes back, torch's."""
    if not then:
        return x
    if not tracked(x):
        return torch.from_numpy(finished(x.detach().cpu().numpy(), then)).to(x.device)
    for how, axis in then:
        x = x.argmax(axis) if how == "argmax" else getattr(torch, how)(x, axis)
    return x


@contextmanager
def unfinished(model: nn.Module) -> Iterator[None]:
    """Inside, a quantized model gives its logits, also where its forward ends with a softmax or an argmax:
    what is measured is measured in front of it."""
    before = getattr(model, "finishes", None)
    if before is not None:
        model.finishes = False  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is not None:
            model.finishes = before

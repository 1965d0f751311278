"""Where the logits are in what a model returns, and how far those of two models are apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import UnsupportedModel

__all__ = [
    "Readout", "divergence", "divergences", "find_readout", "mean_divergence", "same_draws", "temperature",
]  # fmt: skip

MARGIN = 4.0  # between the first and the second logit, on average


@dataclass(frozen=True)
class Readout:
    """The model's first output tensor; axes in front of the batch are time steps and are averaged."""

    axis: int

    def __call__(self, output: Any) -> Tensor:
        """Logits [B, classes, ...]; or decisions [B], whole numbers, where the model itself decides."""
        x = first_tensor(output)
        if x.dim() == 1 and x.dtype == torch.int64:
            return x
        y = x.float().flatten(0, self.axis - 1).mean(0) if self.axis else x.float()
        return y if y.dim() > 1 else y.unsqueeze(1)


@contextmanager
def same_draws() -> Iterator[None]:
    """An encoder that draws spikes draws the same ones in every model; the global random state comes back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def first_tensor(output: Any) -> Tensor:
    for x in tree_flatten(output)[0]:
        if isinstance(x, Tensor):
            return x
    raise UnsupportedModel("the model returns no tensor; return the logits")


def _output_shape(model: nn.Module, x: Tensor) -> torch.Size:
    reset_neurons(model)
    try:
        with torch.no_grad():
            return first_tensor(model(x)).shape
    finally:
        reset_neurons(model)


def find_readout(model: nn.Module, x: Tensor, batch_axis: int) -> Readout:
    """Run two samples and one, or three: the axis that changes with them is the batch."""
    one = x.narrow(batch_axis, 0, 1)
    two = torch.cat([one, one], batch_axis)
    shapes = [_output_shape(model, two)]
    try:
        shapes.append(_output_shape(model, one))
    except (RuntimeError, ValueError):  # some norms need more than one
        shapes.append(_output_shape(model, torch.cat([two, one], batch_axis)))
    axes = [i for i, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b]
    if len(axes) != 1:
        raise UnsupportedModel(
            f"the output's shape {list(shapes[0])} has no batch axis; return [batch, classes] or "
            f"[time, batch, classes]"
        )
    return Readout(axes[0])


def log_shares(x: Tensor) -> Tensor:
    """Log-softmax of x [B, classes, ...]; torch's own adds up in the order of the CPU's vectors."""
    x = x - x.amax(1, keepdim=True)
    return x - x.exp().sum(1, keepdim=True).log()


def divergence(expected: Tensor, found: Tensor) -> tuple[float, float]:
    """Mean KL(expected || found) and share of equal decisions, from logits [B, classes, ...]."""
    p, q = (log_shares(x.double()) for x in (expected, found))
    kl = float((p.exp() * (p - q)).sum(1).mean())
    return kl, float((expected.argmax(1) == found.argmax(1)).double().mean())


def temperature(expected: Iterable[Tensor]) -> float:
    """By what logits are divided so that their decisions are neither certain nor open, whatever scale the
    network was trained at (sums of spikes, rates, membranes): the mean margin of the float model's
    decisions becomes MARGIN."""
    margins = [t[:, 0] - t[:, 1] for x in expected if x.shape[1] > 1 for t in [x.double().topk(2, 1).values]]
    mean = float(torch.cat([m.flatten() for m in margins]).mean()) if margins else 0.0
    return mean / MARGIN if mean > 0 else 1.0


def divergences(expected: Tensor, found: Tensor, temperature: float) -> Tensor:
    """KL(expected || found) [B] of logits [B, classes, ...] over a temperature; of a map its mean."""
    p, q = (log_shares(x.double() / temperature) for x in (expected, found))
    return (p.exp() * (p - q)).sum(1).reshape(len(p), -1).mean(1)


def mean_divergence(batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """`divergence` over all samples, a batch at a time: the logits of label maps are large."""
    samples, kl, agreement = 0, 0.0, 0.0
    for expected, found in batches:
        a, b = divergence(expected, found)
        samples, kl, agreement = samples + len(found), kl + a * len(found), agreement + b * len(found)
    return kl / samples, agreement / samples

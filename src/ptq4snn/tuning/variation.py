"""Samples once more, a little different each time: a few hundred of them are learned by heart otherwise.

What a network shall answer is not needed, for the float network answers; so all that can be done to a sample
that leaves it one of its kind may be done. Images and recordings of maps [..., H, W] are moved by up to an
eighth of their height and width, with mirrored edges, and every other one on average is flipped left to
right. All steps of a recording are moved alike, values stay what they were. Other samples stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.discovery.folding import Folded

__all__ = ["has_maps", "varied"]

REACH = 8  # a sample is moved by at most one part in so many of its size


def has_maps(folded: Folded) -> bool:
    """Whether samples are maps: everything that reads them is a convolution in two dimensions."""
    d = folded.discovery
    readers = [folded.projection(n) for n, p in d.projections.items() if p.reads == "data"]
    return bool(readers) and all(isinstance(m, nn.Conv2d) for m in readers)


def varied(x: Tensor, batch_axis: int, generator: torch.Generator) -> Tensor:
    """x [..., H, W] with every sample moved and perhaps flipped."""
    height, width = x.shape[-2:]
    out = []
    for sample in x.unbind(batch_axis):
        rows = _moved(height, generator).to(x.device)
        columns = _moved(width, generator).to(x.device)
        if int(torch.randint(0, 2, (), generator=generator)):
            columns = columns.flip(0)
        out.append(sample[..., rows[:, None], columns])
    return torch.stack(out, batch_axis)


def _moved(size: int, generator: torch.Generator) -> Tensor:
    """Where each of `size` places is read: all moved by one step, mirrored at the ends."""
    reach = size // REACH
    at = torch.arange(size) + int(torch.randint(-reach, reach + 1, (), generator=generator))
    at = at.abs()
    return torch.where(at < size, at, 2 * (size - 1) - at)

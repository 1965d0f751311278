"""Read the numbers of a tensor: which axes are samples, which are elements, which of these are channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ptq4snn.lowering.tracked import UNWRITTEN, Refused

__all__ = ["Split", "function_of", "in_own_order", "number", "split", "unique_rows"]


@dataclass(frozen=True)
class Split:
    """`sample` (t * B + b) and `element` e of a tensor's numbers, each of size 1 along the axes on which it
    does not change; e < 0 where nothing is stored."""

    sample: Tensor
    element: Tensor
    shape: tuple[int, ...]

    def varies(self, axis: int) -> bool:
        """Whether the axis runs over steps or samples."""
        return self.sample.shape[axis] > 1

    @property
    def separate(self) -> bool:
        """No axis holds both samples and elements."""
        pairs = zip(self.sample.shape, self.element.shape, strict=True)
        return all(s == 1 or e == 1 for s, e in pairs)


def split(numbers: Tensor, elements: int) -> Split:
    if bool((numbers == UNWRITTEN).any()):
        raise Refused("reads a buffer of which a part was never written; make the buffer no larger than that")
    middle = [n // 2 for n in numbers.shape]
    if (
        numbers.numel() and numbers[tuple(middle)] < 0 and bool((numbers >= 0).any())
    ):  # zeros between elements
        stored = (numbers >= 0).nonzero()
        middle = stored[len(stored) // 2].tolist()
    varied = []
    for d in range(numbers.dim()):
        line = numbers[tuple(slice(None) if i == d else m for i, m in enumerate(middle))]
        samples = (line // elements)[line >= 0]
        varied.append(len(samples) > 0 and bool(samples.min() != samples.max()))
    here = [slice(m, m + 1) for m in middle]
    whole = slice(None)
    sample = numbers[tuple(whole if v else h for v, h in zip(varied, here, strict=True))] // elements
    element = numbers[tuple(h if v else whole for v, h in zip(varied, here, strict=True))]
    element = torch.where(element < 0, element, element % elements)
    shape = tuple(numbers.shape)
    if bool((sample >= 0).all()) and torch.equal(numbers, number(sample, element, elements).expand(shape)):
        return Split(sample, _narrowed(element), shape)
    sample = torch.where(numbers < 0, -1, numbers // elements)  # some axes hold both
    element = torch.where(numbers < 0, numbers, numbers % elements)
    return Split(_narrowed(sample), _narrowed(element), shape)


def _narrowed(x: Tensor) -> Tensor:
    """Size 1 along the axes on which nothing changes."""
    for d in range(x.dim()):
        first = x.narrow(d, 0, 1)
        x = first if torch.equal(x, first.expand_as(x)) else x
    return x


def number(sample: Tensor, element: Tensor, elements: int) -> Tensor:
    """Inverse of `split`."""
    made = sample * elements + element
    return torch.where(element < 0, element, made) if bool((element < 0).any()) else made


def function_of(a: Tensor, b: Tensor, count: int) -> Tensor | None:
    """b as a function [count] of a, -1 where a takes no such value; None where it is none."""
    a, b = torch.broadcast_tensors(a, b)
    found = torch.full((count,), -1, dtype=torch.int64)
    found[a.reshape(-1)] = b.reshape(-1)
    return found if torch.equal(found[a], b) else None


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of [n, k] in the order they come [m, k], and the number of each row's [n]."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator) * 2 + 1
    _, inverse = torch.unique((rows * mix).sum(1), return_inverse=True)
    count = int(inverse.max()) + 1
    first = torch.full((count,), len(rows), dtype=torch.int64)
    first.scatter_reduce_(0, inverse, torch.arange(len(rows)), "amin")
    order = first.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count)
    found, which = rows[first[order]], rank[inverse]
    if not torch.equal(found[which], rows):  # two rows with one sum of products: never seen
        raise Refused("has windows that cannot be told apart")
    return found, which


def in_own_order(s: Split, channels: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes of positions and axes of channels of a tensor whose values have `channels` channels."""
    if not s.separate:
        raise Refused("mixes time steps and samples with other elements on one axis")
    whole = not bool((s.element < 0).any())
    stored = s.element % channels if whole else torch.where(s.element < 0, -1, s.element % channels)
    along = [d for d in range(len(s.shape)) if _changes(stored, d, None if whole else channels)]
    positions = tuple(d for d in range(len(s.shape)) if d not in along and not s.varies(d))
    return positions, tuple(along)


def _changes(stored: Tensor, axis: int, channels: int | None) -> bool:
    """Whether channels change along an axis; with `channels`, -1 among them counts for none."""
    if channels is None:
        return not torch.equal(stored, stored.narrow(axis, 0, 1).expand_as(stored))
    least = torch.where(stored < 0, channels, stored).amin(axis)
    return bool((stored.amax(axis) > least).any())


def size_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return prod(shape[d] for d in axes)

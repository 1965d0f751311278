"""Read the numbers of a tensor: which axes are samples, which are elements, which of these are channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ptq4snn.lowering.tracked import UNWRITTEN, Refused

__all__ = ["Split", "blanks", "function_of", "in_own_order", "number", "same_numbers", "split", "unique_rows"]

NARROW = 2**31  # numbers below it are kept as int32: they are as large as the tensors, and many


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
    if numbers.numel() and int(numbers.min()) == UNWRITTEN:  # the least that there is
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
    sample = numbers[tuple(whole if v else h for v, h in zip(varied, here, strict=True))].long() // elements
    element = numbers[tuple(h if v else whole for v, h in zip(varied, here, strict=True))].long()
    element = torch.where(element < 0, element, element % elements)
    shape = tuple(numbers.shape)
    if bool((sample >= 0).all()) and _is_made_of(numbers, sample, element, elements):
        return Split(sample, _narrowed(element), shape)
    numbers = numbers.long()
    sample = torch.where(numbers < 0, -1, numbers // elements)  # some axes hold both
    element = torch.where(numbers < 0, numbers, numbers % elements)
    return Split(_narrowed(sample), _narrowed(element), shape)


def _narrowed(x: Tensor) -> Tensor:
    """Size 1 along the axes on which nothing changes."""
    for d in range(x.dim()):
        first = x.narrow(d, 0, 1)
        x = first if torch.equal(x, first.expand_as(x)) else x
    return x


def _is_made_of(numbers: Tensor, sample: Tensor, element: Tensor, elements: int) -> bool:
    """Whether the numbers are those of `sample` and `element`; row by row, for they are large."""
    rows = len(numbers) if numbers.dim() else 1
    for i in range(rows):
        s, e = (x if not x.dim() or len(x) == 1 else x[i : i + 1] for x in (sample, element))
        row = numbers[i : i + 1] if numbers.dim() else numbers
        if not same_numbers(row, number(s, e, elements).expand_as(row)):
            return False
    return True


def number(sample: Tensor, element: Tensor, elements: int) -> Tensor:
    """Inverse of `split`."""
    most = (max(0, int(sample.max())) + 1) * elements if sample.numel() else 0
    kind = torch.int32 if most < NARROW else torch.int64
    sample, element = sample.to(kind), element.to(kind)
    made = sample * elements + element
    return torch.where(element < 0, element, made) if blanks(element) else made


def blanks(numbers: Tensor) -> bool:
    """Whether some stand for what is stored nowhere."""
    return numbers.numel() > 0 and int(numbers.min()) < 0


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Equal, in whatever type they are kept."""
    return torch.equal(a, b) if a.dtype == b.dtype else torch.equal(a.long(), b.long())


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

"""Second moments of what a projection reads: H = 2/n sum x x^T, x the columns that a row of its weight meets.

Of convolutions x are patches. Counts of spikes are small integers, so that their sums are exact in any order
and any type that holds them: as bytes, a patch is copied tap by tap, C channels in one piece, and a product
of bytes takes a fraction of the time of one of floats. What is no small integer is laid out in float32, or in
float64 where a sum would not be exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Hessian", "columns", "enough", "positions", "unravelled"]

EXACT = 2**24  # integers up to here are exact in float32
SMALL = 15  # the largest |x| that goes as a byte: no product of pairs saturates 16 bits on any CPU
LARGEST = 2**31  # that a sum of products of bytes stays below
CHUNK = 2**24  # values of x that are laid out at once
AT_LEAST, PER_INPUT = 2**14, 32  # columns x that a Hessian is taken of, where there are so many
BLOCKS, WIDE = 4, 256  # rows of blocks that a sum of x x^T is made of, and from how many inputs on


def columns(module: nn.Module, x: Tensor, picked: Tensor | None = None) -> Tensor:
    """x [..., C, positions] as [groups, K, n]: what each row of the weight [rows, K] is multiplied with.

    picked [n]: only these of all output positions of all samples, counted through.
    """
    if isinstance(module, nn.Linear):
        rows = x.reshape(-1, module.in_features)
        return (rows if picked is None else rows[picked])[None].transpose(1, 2)
    conv: Any = module
    rank = conv.weight.dim() - 2
    x = _padded(conv, x)
    for d in range(rank):
        size, gap = conv.kernel_size[d], conv.dilation[d]
        x = x.unfold(2 + d, (size - 1) * gap + 1, conv.stride[d])[..., ::gap]
    x = x.movedim(1, 1 + rank)  # [n, *positions, C, *taps], a view so far
    if picked is not None:
        x = x[unravelled(picked, x.shape[: 1 + rank])]
    channels = x.shape[-1 - rank]
    x = x.reshape(-1, conv.groups, channels // conv.groups * prod(conv.kernel_size))
    return x.permute(1, 2, 0)


def _padded(conv: Any, x: Tensor) -> Tensor:
    """x [samples, C, *sizes] with its borders."""
    x = x.reshape(-1, *x.shape[1 - conv.weight.dim() :])
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    padding = conv._reversed_padding_repeated_twice
    return F.pad(x, padding, mode) if any(padding) else x


def unravelled(places: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Where `places` [n], counted through, lie on each axis. torch.unravel_index loads sympy for it, which
    takes longer than a float pass of a small network."""
    found = []
    for size in reversed(shape):
        found.append(places % size)
        places = places // size
    return tuple(reversed(found))


def small_columns(module: nn.Module, x: Tensor, picked: Tensor) -> Tensor:
    """The same of whole numbers that fit a byte: int8 [groups, n, K], of a convolution K in the order (tap,
    channel)."""
    if isinstance(module, nn.Linear):
        return x.reshape(-1, module.in_features)[picked].to(torch.int8)[None]
    conv: Any = module
    rank, groups = conv.weight.dim() - 2, conv.groups
    x = _padded(conv, x)
    sizes, channels = x.shape[2:], x.shape[1]
    flat = torch.empty(x.shape[0], *sizes, channels, dtype=torch.int8, device=x.device)
    flat.copy_(x.movedim(1, -1))
    strides = [prod(sizes[d + 1 :]) for d in range(rank)]
    axes = tuple(zip(sizes, conv.kernel_size, conv.dilation, conv.stride, strict=True))
    shape = [(size - (taps - 1) * gap - 1) // step + 1 for size, taps, gap, step in axes]
    sample, *at = unravelled(picked, (x.shape[0], *shape))
    first = sample * prod(sizes)
    for place, (_, _, _, step), stride in zip(at, axes, strides, strict=True):
        first = first + place * (step * stride)
    taps = itertools.product(*(range(size) for size in conv.kernel_size))
    steps = [sum(i * g * s for i, g, s in zip(tap, conv.dilation, strides, strict=True)) for tap in taps]
    found = flat.view(-1, channels)[first[:, None] + torch.tensor(steps, device=x.device)]  # [n, taps, C]
    if groups == 1:
        return found.flatten(1)[None]
    grouped: Tensor = found.unflatten(2, (groups, -1)).permute(2, 0, 1, 3).flatten(2)
    return grouped


def _by_channel(module: nn.Module) -> Tensor | None:
    """Where each of the K columns of a weight is in the order (tap, channel); None: the same place."""
    if isinstance(module, nn.Linear):
        return None
    conv: Any = module
    channels, taps = conv.weight.shape[1], prod(conv.kernel_size)
    return torch.arange(taps * channels, device=conv.weight.device).view(taps, channels).t().flatten()


def positions(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """Samples (and steps) of x, and the output positions of each."""
    if isinstance(module, nn.Linear):
        return 1, x.numel() // module.in_features
    conv: Any = module
    rank = conv.weight.dim() - 2
    samples = x.numel() // prod(x.shape[-1 - rank :])
    padding = conv._reversed_padding_repeated_twice
    found = 1
    for d in range(rank):
        last = 2 * (rank - 1 - d)
        size = x.shape[d - rank] + padding[last] + padding[last + 1]
        found *= (size - (conv.kernel_size[d] - 1) * conv.dilation[d] - 1) // conv.stride[d] + 1
    return samples, found


def enough(size: int) -> int:
    """Columns x of that many inputs that a mean needs."""
    return max(AT_LEAST, PER_INPUT * size)


class Hessian:
    """Sum of x x^T and how many x; sums of parts add up to the whole.

    calls: how often it will be updated. Where that brings more x than a mean needs (AT_LEAST, and PER_INPUT
    for each of the K inputs), every n-th is taken, at other positions in each sample.
    unit: x are multiples of it, counts of spikes. They are summed as integers, in any order the same.
    """

    def __init__(self, module: nn.Module, calls: int | None = None, unit: float | None = None) -> None:
        self.unit = unit
        weight: Tensor = module.weight  # type: ignore[assignment]
        self.module, self.calls = module, calls
        self.groups = int(getattr(module, "groups", 1))
        self.size = weight[0].numel()
        self.device = weight.device
        self.total: Tensor | None = None  # [groups, K, K] float64; None: nothing yet
        self.small: Tensor | None = None  # the same of bytes, int64, as `small_columns` orders them
        self.count = self.seen = self.before = self.number = 0
        self.share = 1.0
        self.parts: dict[int, Tensor] = {}  # by micro-batch, where sums are not exact
        self.added = self.at = 0  # blocks of this micro-batch that are in the sums, and where it is now
        self.every = 0  # of all positions; 0: not known yet

    def _zeros(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.zeros(self.groups, self.size, self.size, dtype=dtype, device=self.device)

    def begin(self, number: int, share: float, once: int) -> None:
        """Micro-batch `number` comes next, with `share` of the samples of a full one, in `once` calls: which
        positions are taken of it hangs on nothing that came before."""
        self.number, self.before, self.share, self.seen = number, number * once, share, 0
        self.added = self.at = 0

    def again(self) -> None:
        """The same micro-batch from its beginning, for memory ran out: what is in the sums stays there."""
        self.seen = self.at = 0

    def end(self, keep: bool) -> None:
        """The micro-batch is whole. Real numbers are added batch by batch, and kept until all are known if
        `keep` says so: their order does not hang on who had which."""
        if self.unit is None and not keep:
            self.plus(self.parts.pop(self.number))

    def plus(self, part: Tensor) -> None:
        """Add a sum [groups, K, K] of others."""
        self.total = part.clone() if self.total is None else self.total.add_(part)

    def update(self, x: Tensor) -> None:
        """Take in one call's input, of any leading dimensions."""
        x = x.detach()
        samples, each = positions(self.module, x)
        full = round(samples * each / self.share)
        if not self.every:
            self.every = self._stride(full, each)
        first = -(self.before * full + self.seen) % self.every
        self.seen += samples * each
        picked = torch.arange(first, samples * each, self.every, device=x.device)
        parts = picked.split(max(1, CHUNK // (self.size * self.groups)))
        whole = self._whole(x, len(parts[0]))
        for part in parts:
            if whole is not None:
                self._add_small(small_columns(self.module, whole, part))
            else:
                self._add(self._laid(x, part))

    def _whole(self, x: Tensor, count: int) -> Tensor | None:
        """x in units, where it goes as bytes and sums over `count` of it are no larger than those may be."""
        if self.unit is None or not count or x.device.type != "cpu":
            return None
        x = x if self.unit == 1.0 else x / self.unit
        largest = max(-float(x.min()), float(x.max()))
        return x.round() if largest <= SMALL and largest**2 * count < LARGEST else None

    def _laid(self, x: Tensor, picked: Tensor) -> Tensor:
        """Columns [groups, K, n] in a type that sums of them are exact in, if they are in any."""
        laid = columns(self.module, x, picked).float()
        if self.unit is not None:
            laid = (laid / self.unit).round()
        largest = float(laid.abs().amax()) if laid.numel() else 0.0
        return laid.double() if largest**2 * laid.shape[2] > EXACT else laid

    def _add(self, laid: Tensor) -> None:
        """x x^T of laid [groups, K, n]."""
        if self.unit is None:
            total = self.parts.setdefault(self.number, self._zeros())
        else:
            total = self.total = self._zeros() if self.total is None else self.total
        for rows in self._rows(laid.shape[2]):
            _symmetric(total, rows, (laid[:, rows] @ laid[:, rows.start :].transpose(1, 2)).double())

    def _add_small(self, laid: Tensor) -> None:
        """x x^T of laid int8 [groups, n, K]."""
        if self.small is None:
            self.small = self._zeros(torch.int64)
        for rows in self._rows(laid.shape[1]):
            found = [torch._int_mm(x[:, rows].t(), x[:, rows.start :]) for x in laid]
            _symmetric(self.small, rows, torch.stack(found))

    def _rows(self, count: int) -> Iterator[slice]:
        """Of the blocks of a sum over `count` columns that are not added yet: what lies above the diagonal's
        blocks lies below it, too."""
        size = -(-self.size // BLOCKS) if self.size >= WIDE else self.size
        for i in range(0, self.size, size):
            self.at += 1
            if self.at > self.added:
                yield slice(i, min(i + size, self.size))
                self.count += 0 if i else count
                self.added = self.at

    def _stride(self, now: int, each: int) -> int:
        """How many positions make one that is taken, so that the same ones are not met in every sample."""
        every = max(1, now * (self.calls or 0) // enough(self.size))
        while every > 1 and gcd(every, each) > 1:
            every += 1
        return every

    def close(self) -> Tensor:
        """All integers into `total`, in the order of the weight's columns."""
        if self.small is not None:
            order, small = _by_channel(self.module), self.small
            self.small = None
            self.plus((small if order is None else small[:, order][:, :, order]).double())
        if self.total is None:
            self.total = self._zeros()
        return self.total

    def merge(self, other: Hessian) -> Hessian:
        """Both together; sums of integers are the same in any order."""
        for part in (other.close(), *other.parts.values()):
            self.plus(part)
        self.count += other.count
        return self

    def value(self) -> Tensor:
        """H [groups, K, K]."""
        total = sum(self.parts.values(), self.close())
        return total * (2 / max(1, self.count) * (self.unit or 1.0) ** 2)


def _symmetric(total: Tensor, rows: slice, found: Tensor) -> None:
    """Add the rows of a symmetric matrix [groups, K, K], from the diagonal on, to both of its sides."""
    total[:, rows, rows.start :] += found
    total[:, rows.stop :, rows] += found[:, :, rows.stop - rows.start :].transpose(1, 2)

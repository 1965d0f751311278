"""Numbers of elements and positions in compact form: strides where they are regular, a list where not."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Index", "Numbers", "Window", "compact", "identity", "index_from", "index_to", "strided", "window_taps",
]  # fmt: skip

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """Number i is `offset` + the sum of stride * coordinate, i being row-major over `sizes`. With `numbers`
    there are as many for each i: number (i, j) is numbers[j] more. Without sizes these are the numbers
    themselves, and -1 among them stands for a zero that is stored nowhere."""

    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    numbers: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        return prod(self.sizes) * (1 if self.numbers is None else len(self.numbers))

    def array(self) -> Numbers:
        """All numbers [count]."""
        out = np.full((1,), self.offset, dtype=np.int64)
        for size, stride in zip(self.sizes, self.strides, strict=True):
            out = (out[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
        if self.numbers is None:
            return out
        return (out[:, None] + np.asarray(self.numbers, dtype=np.int64)).reshape(-1)

    def is_identity(self, count: int) -> bool:
        return self.count == count and bool(np.array_equal(self.array(), np.arange(count)))


def identity(count: int) -> Index:
    return Index((count,), (1,))


def compact(numbers: Numbers) -> Index:
    """The shortest strided form of `numbers`, or the numbers themselves."""
    flat = np.asarray(numbers, dtype=np.int64).reshape(-1)
    found = strided(flat)
    return Index(numbers=tuple(int(i) for i in flat)) if found is None else found


def strided(flat: Numbers) -> Index | None:
    """The shortest strided form of numbers [n], if there is one."""
    sizes: list[int] = []
    strides: list[int] = []
    rest = flat
    while len(rest) > 1:
        step = int(rest[1] - rest[0])
        broken = np.flatnonzero(np.diff(rest) != step)
        run = int(broken[0]) + 1 if len(broken) else len(rest)
        if len(rest) % run:
            break
        rows = rest.reshape(-1, run)
        alike = np.broadcast_to(rows[0] - rows[0, 0], rows.shape)
        if run == 1 or not np.array_equal(rows - rows[:, :1], alike):
            break
        sizes.insert(0, run)
        strides.insert(0, step)
        rest = rows[:, 0]
    if len(rest) != 1 or int(flat.min(initial=0)) < 0:
        return None
    return Index(tuple(sizes), tuple(strides), int(rest[0]))


def index_to(x: Index) -> dict[str, Any]:
    strided = {"sizes": list(x.sizes), "strides": list(x.strides), "offset": x.offset}
    if x.numbers is None:
        return strided
    return {**(strided if x.sizes else {}), "numbers": list(x.numbers)}


def index_from(d: dict[str, Any]) -> Index:
    numbers = tuple(map(_whole, d["numbers"])) if "numbers" in d else None
    if set(d) == {"numbers"}:
        return Index(numbers=numbers)
    if set(d) - {"numbers"} != {"sizes", "strides", "offset"}:
        raise ValueError("an index has sizes, strides and offset, or numbers, or both")
    return Index(
        tuple(map(_whole, d["sizes"])), tuple(map(_whole, d["strides"])), _whole(d["offset"]), numbers
    )


def _whole(x: Any) -> int:
    if not isinstance(x, int) or isinstance(x, bool):
        raise TypeError(f"{x!r} is not a whole number")
    return x


@dataclass(frozen=True)
class Window:
    """A window that moves over `size`: kernel, stride, padding on both sides, dilation, one entry an axis."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]  # padding in front of an axis
    after: tuple[int, ...]  # and behind it
    dilation: tuple[int, ...]

    @property
    def out_size(self) -> tuple[int, ...]:
        return tuple(
            (n + b + a - d * (k - 1) - 1) // s + 1
            for n, k, s, b, a, d in zip(
                self.size, self.kernel, self.stride, self.before, self.after, self.dilation, strict=True
            )
        )


def window_taps(w: Window) -> Numbers:
    """Position numbers [P_out, taps] that every output position reads; -1 outside."""
    out = np.zeros((1, 1), dtype=np.int64)
    for axis, n in enumerate(w.size):
        at = np.arange(w.out_size[axis])[:, None] * w.stride[axis] - w.before[axis]
        at = at + np.arange(w.kernel[axis]) * w.dilation[axis]  # [out, kernel]
        at = np.where((at >= 0) & (at < n), at, -1)
        both = out[:, None, :, None] * n + at[None, :, None, :]
        both = np.where((out[:, None, :, None] < 0) | (at[None, :, None, :] < 0), -1, both)
        out = both.reshape(out.shape[0] * at.shape[0], out.shape[1] * at.shape[1])
    return out

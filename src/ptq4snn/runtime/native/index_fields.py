"""Indices and axes of pools as the kernels read them: by strides where they are regular."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ptq4snn.network.index import Index
from ptq4snn.network.program import PoolAxis

__all__ = ["axis_fields", "index_fields"]

MOST_AXES = 8  # csrc/window.h


def index_fields(index: Index, positions: int, row: int) -> dict[str, Any]:
    """An index of `row` numbers for each position: where every position has the same ones, moved by a sum of
    strides, that row and the strides; else all of them."""
    found = _by_rows(index, positions)
    if found is None:
        return {"index": index.array().astype(np.int32)}
    axes, inside = found
    numbers = inside.array()
    assert len(numbers) == row
    return {"index": numbers.astype(np.int32), "index_strides": np.array(axes, dtype=np.int32)}


def _by_rows(index: Index, positions: int) -> tuple[list[tuple[int, int]], Index] | None:
    """(size, stride) of the axes of positions, and the index of one row."""
    axes: list[tuple[int, int]] = []
    left = positions
    for at, (size, stride) in enumerate(zip(index.sizes, index.strides, strict=True)):
        if left == 1 and axes:
            return axes, Index(index.sizes[at:], index.strides[at:], index.offset, index.numbers)
        if stride < 0 or len(axes) == MOST_AXES or (left % size and size % left):
            return None
        if size > left:  # the axis goes on within a row
            rest = size // left
            sizes, strides = (rest, *index.sizes[at + 1 :]), index.strides[at:]
            return [*axes, (left, stride * rest)], Index(sizes, strides, index.offset, index.numbers)
        axes.append((size, stride))
        left //= size
    return (axes, Index((), (), index.offset, index.numbers)) if left == 1 and axes else None


def axis_fields(axes: Sequence[PoolAxis]) -> dict[str, Any]:
    """A pool over axes with taps of their own."""
    outs = [len(a.taps) // a.kernel for a in axes]
    window = [(a.size, a.kernel, 1, 0, 1, out) for a, out in zip(axes, outs, strict=True)]
    taps, weights = [n for a in axes for n in a.taps], [n for a in axes for n in a.weights]
    return {
        "taps": prod(a.kernel for a in axes), "window": np.array(window, dtype=np.int32),
        "axis_taps": np.array(taps, dtype=np.int32), "axis_weights": np.array(weights, dtype=np.int32),
    }  # fmt: skip

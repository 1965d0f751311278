"""Writes a native plan as one block of numbers, laid out as `layout.py` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.runtime.native.layout import (
    ALIGNMENT,
    ARRAY_FIELDS,
    ARRAY_TYPES,
    HEADER,
    MAGIC,
    OP_FIELDS,
    VALUE_FIELDS,
    NativeOp,
    NativeValue,
)

__all__ = ["Blob"]

Array: TypeAlias = NDArray[Any]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Blob:
    """Collects arrays, each content once, and writes everything as one block."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []
        self._known: dict[tuple[str, bytes], int] = {}

    def _array(self, a: Array) -> int:
        key = (a.dtype.str, a.tobytes())
        if key not in self._known:
            self._known[key] = len(self._arrays)
            self._arrays.append(np.ascontiguousarray(a).reshape(-1))
        return self._known[key]

    def _number(self, x: Any) -> int:
        if isinstance(x, tuple):
            x = np.array(x, dtype=np.int32)
        if isinstance(x, np.ndarray):
            return self._array(x) if x.size else -1
        return -1 if x is None else int(x)

    def write(
        self, values: Iterable[NativeValue], operations: Iterable[NativeOp], head: dict[str, int]
    ) -> Array:
        """The whole plan, as bytes. `head` are the fields of the header that the tables do not tell."""
        places = [[int(getattr(v, name)) for name in VALUE_FIELDS] for v in values]
        rows = [[self._number(getattr(op, name)) for name in OP_FIELDS] for op in operations]
        lengths = (len(ARRAY_FIELDS) * len(self._arrays), *map(len, places), *map(len, rows))
        at = _aligned(8 * (len(HEADER) + sum(lengths)))
        entries: list[list[int]] = []
        for a in self._arrays:
            entry = {"type": ARRAY_TYPES.index(a.dtype), "offset": at, "count": a.size}
            entries.append([entry[name] for name in ARRAY_FIELDS])
            at += _aligned(a.nbytes)
        counts = {"values": len(places), "arrays": len(entries), "ops": len(rows)}
        first = {**head, **counts, "magic": MAGIC, "size": at}
        numbers = [first[name] for name in HEADER]
        numbers += [x for table in (places, entries, rows) for row in table for x in row]
        out = np.zeros(at, dtype=np.uint8)
        out[: 8 * len(numbers)].view("<i8")[:] = numbers
        for a, place in zip(self._arrays, entries, strict=True):
            begin = place[ARRAY_FIELDS.index("offset")]
            out[begin : begin + a.nbytes] = a.view(np.uint8)
        return out

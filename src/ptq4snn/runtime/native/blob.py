"""The block of numbers that is a native plan. csrc/plan.h and csrc/types.h have the same enumerations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "WIDTHS",
    "Blob",
    "Format",
    "How",
    "Kind",
    "NativeOp",
    "NativeValue",
    "format_of",
    "padded",
    "row_bytes",
]

MAGIC = 0x314E414C50515450
ALIGNMENT = 64
WIDTHS = (32, 16, 8, 7, 6, 5, 4, 3, 2)  # of the fields of a packed state

Array: TypeAlias = NDArray[Any]


class Format(IntEnum):
    PLANES1 = 1
    PLANES2 = 2
    PLANES3 = 3
    U8 = 4
    S8 = 5
    I16 = 6
    I32 = 7
    I64 = 8


class Kind(IntEnum):
    QUANTIZE = 0
    PROJECT = 1
    PROJECT_NEURON = 2
    PROJECT_ROWS = 3
    NEURON = 4
    NEURON_ANY = 5
    POOL = 6
    GATHER = 7
    COMBINE = 8
    MULTIPLY = 9
    AFFINE = 10
    CLIP = 11
    CHOICE = 12
    MATMUL = 13
    TIME_SUM = 14
    OVER_TIME = 15
    LOAD_STATE = 16
    STORE_STATE = 17
    KEEP = 18


How = IntEnum("How", "sum max min gt ge lt le eq ne", start=0)

TYPES = {np.dtype(np.int8): 0, np.dtype(np.int32): 1, np.dtype(np.int64): 2, np.dtype(np.float64): 3}


def padded(channels: int) -> int:
    return -(-channels // 64) * 64


def row_bytes(kind: Format, channels: int) -> int:
    if kind <= Format.PLANES3:
        return kind * padded(channels) // 8
    sizes = {Format.U8: 1, Format.S8: 1, Format.I16: 2, Format.I32: 4, Format.I64: 8}
    return channels * sizes[kind]


def format_of(low: int, high: int, planes: bool = True) -> Format:
    """The smallest format that holds low .. high."""
    if low >= 0 and high <= 7 and planes:
        return Format.PLANES1 if high <= 1 else Format.PLANES2 if high <= 3 else Format.PLANES3
    if low >= 0 and high <= 255:
        return Format.U8
    for kind, bits in ((Format.S8, 8), (Format.I16, 16), (Format.I32, 32)):
        if -(2 ** (bits - 1)) <= low and high < 2 ** (bits - 1):
            return kind
    return Format.I64


@dataclass
class NativeValue:
    positions: int
    channels: int
    time: bool
    format: Format
    local: bool = False  # only as long as its region runs
    offset: int = 0

    @property
    def row(self) -> int:
        return row_bytes(self.format, self.channels)


Entry: TypeAlias = Array | None  # goes beside the table; None: there is none


@dataclass
class NativeOp:
    """One row of the table; but for `name`, the fields and their order are those of csrc/plan.h."""

    kind: Kind
    output: int = -1
    second: int = -1  # potential of a neuron
    region: int = 0
    sources: tuple[int, ...] = ()
    wide: bool = False  # computed in int64
    how: int = 0
    width: int = 1
    groups: int = 1
    state: int = -1
    slot: int = -1
    pads_zero: bool = False
    constant: int = 0
    low: int = 0
    high: int = 0
    steps: int = 0
    coefficients: Entry = None
    index: Entry = None
    signs: Entry = None
    shifts: Entry = None
    pool_weights: Entry = None
    inverse: Entry = None
    zeros: Entry = None
    taps: int = 1
    table: Entry = None
    cin: int = -1
    cout: int = -1
    bits: int = 8
    shift: int = 0
    narrow: bool = False
    weights: Entry = None
    bias: Entry = None
    bias_row: Entry = None
    rescale_m: Entry = None
    rescale_n: Entry = None
    lo: int = 0
    hi: int = 0
    theta: Entry = None
    rho: Entry = None
    charge_m: Entry = None
    charge_n: Entry = None
    settle_m: Entry = None
    settle_n: Entry = None
    state_low: Entry = None
    state_high: Entry = None
    neuron_channels: int = -1
    reset: int = 0
    dither: bool = False
    wide_products: bool = False
    once: bool = False
    gain: int = 0
    bound: int = 0
    channel: Entry = None
    element: Entry = None
    widths: Entry = None
    order: Entry = None
    zero: Entry = None
    name: str = ""


FIELDS = [f.name for f in fields(NativeOp) if f.name != "name"]


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
        """The whole plan, as bytes."""
        places = [(v.positions, v.channels, v.time, v.format, v.local, v.offset) for v in values]
        rows = [[self._number(getattr(op, name)) for name in FIELDS] for op in operations]
        tables = 8 * (12 + 6 * len(places) + 3 * len(self._arrays) + len(FIELDS) * len(rows))
        at, entries = -(-tables // ALIGNMENT) * ALIGNMENT, []
        for a in self._arrays:
            entries.append((TYPES[a.dtype], at, a.size))
            at += -(-a.nbytes // ALIGNMENT) * ALIGNMENT
        sizes = [len(places), len(entries), len(rows), head["states"], head["kept"], head["numbers"]]
        room = [head[key] for key in ("time_bytes", "still_bytes", "local_time_bytes", "local_still_bytes")]
        out = np.zeros(at, dtype=np.uint8)
        numbers = [
            MAGIC,
            at,
            *sizes,
            *room,
            *(int(x) for part in (places, entries, rows) for row in part for x in row),
        ]
        out[: 8 * len(numbers)].view("<i8")[:] = numbers
        for a, (_, begin, _) in zip(self._arrays, entries, strict=True):
            out[begin : begin + a.nbytes] = a.view(np.uint8)
        return out

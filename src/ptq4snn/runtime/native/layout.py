"""The one table of what Python and the kernels share: the block of a plan, enumerations, a call's structs.

`header.py` writes csrc/layout.h from it: after a change here run `python -m ptq4snn.runtime.native.header`.
The instruction set levels stand in `build.py`, which runs before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.runtime.numbers import RESETS

__all__ = [
    "ALIGNMENT", "ARRAY_FIELDS", "ARRAY_TYPES", "COUNTERS", "HEADER", "HOT_WIDTHS", "MAGIC", "OP_FIELDS",
    "PATHS", "REQUEST", "RESETS", "VALUE_FIELDS", "WIDTHS", "Format", "How", "Kind", "NativeOp",
    "NativeValue", "format_of", "padded", "row_bytes",
]  # fmt: skip

Array: TypeAlias = NDArray[Any]

MAGIC = int.from_bytes(b"PTQPLAN1", "little")
ALIGNMENT = 64  # bytes, of arrays and of values
WIDTHS = (32, 16, 8, 7, 6, 5, 4, 3, 2, 1)  # bits of the fields of a packed state, widest first
HOT_WIDTHS = (32, 16, 8, 4, 3, 2)  # those that the hot kernels read and write themselves
PATHS = ("auto", "event", "dense")  # of a projection; auto: by the density of its input


class _Noted(IntEnum):
    """Members with a note for whoever reads csrc/layout.h."""

    note: str

    def __new__(cls, value: int, note: str = "") -> _Noted:
        member = int.__new__(cls, value)
        member._value_, member.note = value, note
        return member


class Format(_Noted):
    """How the integers of a value lie in memory; rows are [position][step][channel]."""

    PLANES1 = 1, "bit planes, 64 channels a word"
    PLANES2 = 2
    PLANES3 = 3
    U8 = 4
    S8 = 5, "value + 128 as a byte"
    I16 = 6
    I32 = 7
    I64 = 8


class Kind(_Noted):
    """What an operation of a plan does."""

    QUANTIZE = 0
    PROJECT = 1, "groups == 1, spikes or bytes"
    PROJECT_NEURON = 2, "the same with the neuron behind it"
    PROJECT_ROWS = 3, "any groups and any input"
    NEURON = 4, "behind rows of numbers"
    NEURON_ANY = 5, "every other neuron: potentials, factors, channels of their own"
    POOL = 6
    GATHER = 7
    COMBINE = 8
    MULTIPLY = 9
    AFFINE = 10
    CLIP = 11
    CHOICE = 12
    MATMUL = 13
    TIME_SUM = 14
    OVER_TIME = 15, "correction of a projection whose input is a sum over other steps than at calibration"
    LOAD_STATE = 16, "a state packed as one row for the whole sample"
    STORE_STATE = 17
    KEEP = 18, "copy a value out"
    TAKE = 19, "the current step of a value, inside of a loop"
    PUT = 20, "the current step of a loop into a value of all steps"


How = IntEnum("How", "sum max min gt ge lt le eq ne", start=0)


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


# The block: a header, the tables of values, arrays and operations (all int64), then the bytes of the arrays.

HEADER = (
    "magic", "size", "values", "arrays", "ops", "states", "kept", "numbers", "time_bytes", "still_bytes",
    "local_time_bytes", "local_still_bytes",
)  # fmt: skip
ARRAY_FIELDS = ("type", "offset", "count")
ARRAY_TYPES = (np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64))


@dataclass
class NativeValue:
    """One row of the table of values."""

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
    """One row of the table of operations, but for `name`, which stays in Python."""

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
    index_strides: Entry = None  # [axes, 2]: size, stride; then `index` has one row, to which they are added
    signs: Entry = None
    shifts: Entry = None
    pool_weights: Entry = None
    inverse: Entry = None
    zeros: Entry = None
    taps: int = 1
    window: Entry = None  # [axes, WINDOW_FIELDS]
    table: Entry = None  # of a pool without a window
    axis_taps: Entry = None  # of a pool with a window that is not regular: [out, kernel] of every axis
    axis_weights: Entry = None
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
    loop: int = -1  # operations of one loop run step by step
    carried: bool = False  # a neuron's second output is the state it began the step with
    lift_m: Entry = None
    lift_n: Entry = None
    most: int = 1  # spikes of a step; above 1 a neuron counts them
    name: str = ""


VALUE_FIELDS = tuple(f.name for f in fields(NativeValue))
OP_FIELDS = tuple(f.name for f in fields(NativeOp) if f.name != "name")

# One call of the library.

REQUEST = (  # name, type in C, note
    ("x", "const float*", "[x_steps][batch][numbers]"),
    ("x_steps", "int64_t", ""),
    ("batch", "int64_t", ""),
    ("numbers", "int64_t", ""),
    ("steps", "int64_t", ""),
    ("first_step", "int64_t", ""),
    ("states", "const uint8_t* const*", "by state: [batch][bytes of a sample], or null: from rest"),
    ("states_to", "uint8_t* const*", "where the call leaves them; may be the same"),
    ("state_bytes", "const int64_t*", "bytes behind each of them"),
    (
        "kept",
        "int64_t* const*",
        "by slot: [steps][batch][positions][channels], no steps without time",
    ),
    ("kept_numbers", "const int64_t*", "numbers behind each of them"),
    ("threads", "int64_t", ""),
    ("path", "int64_t", "of hot::Path"),
    ("profile", "int64_t", ""),
)
COUNTERS = ("nanoseconds", "nonzero", "inputs", "synops", "macs", "event_calls", "dense_calls")  # all int64

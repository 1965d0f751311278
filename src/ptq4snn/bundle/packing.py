"""Signed integers of 1..8, 16 or 32 bits as a dense little-endian stream of bits, and back.

Field i occupies bits [i*b, (i+1)*b) of the stream, and bit j of the stream is bit j % 8 of byte j // 8.
Each field is two's complement, its lowest bit first. Bits after the last field are zero.

4 bits, [-8, 7, 0, -1, 3]; the highest bit of each byte is drawn left, so read each byte from the right:

    byte           0           1           2
    field       7  | -8    -1  |  0     pad |  3
    bits      0111 | 1000 1111 | 0000  0000 | 0011
    hex             78          F0          03

3 bits, [-4, 3, 0, -1, 2]; a field may cross a byte (0 = 00|0 ends byte 0 and begins byte 1):

    byte           0                    1
    field     0 lo |  3  | -4     pad | 2  | -1 | 0 hi
    bits       00  | 011 | 100     0  | 010| 111|  0
    hex            1C                   2E

With 8, 16 and 32 bits this is the plain little-endian array. Only numpy is needed, on any byte order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import BundleError

__all__ = ["ALLOWED_BITS", "MAX_DIMENSIONS", "element_count", "pack", "packed_size", "unpack"]

ALLOWED_BITS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32)
MAX_DIMENSIONS: Final = 32
_MAX_BYTES: Final = 2**63 - 1
_AGAIN: Final = "write the bundle again"
_GROUP: Final = 8  # eight fields of b <= 8 bits are exactly b bytes, and fit one 64-bit word


def pack(values: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The packed bytes of `values` in row-major order: [ceil(values.size * bits / 8)]."""
    if not _allowed(bits):
        raise ValueError(f"{bits!r} bits cannot be packed; use one of {_list(ALLOWED_BITS)}")
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise ValueError(f"values of type {values.dtype} cannot be packed; convert them to integers first")
    flat = values.reshape(-1)
    _check_range(flat, bits)
    if bits > 8:
        return flat.astype(f"<i{bits // 8}").view(np.uint8)
    fields = np.zeros((-(-flat.size // _GROUP), _GROUP), np.uint8)
    fields.reshape(-1)[: flat.size] = flat.astype(np.int8).view(np.uint8) & _mask(bits)
    words = np.zeros(len(fields), "<u8")
    for i in range(_GROUP):
        words |= fields[:, i].astype("<u8") << np.uint64(i * bits)
    stream = words.view(np.uint8).reshape(-1, _GROUP)[:, :bits].reshape(-1)
    return stream[: _bytes(flat.size, bits)].copy()


def unpack(packed: NDArray[np.uint8], bits: int, shape: Sequence[int]) -> NDArray[Any]:
    """The values of a stream as int8 (1..8 bits), int16 or int32, in the given shape."""
    size, expected = element_count(shape), packed_size(shape, bits)
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise BundleError(
            f"the packed bytes must be a list of uint8, not {packed.ndim}-d {packed.dtype}; {_AGAIN}"
        )
    if packed.size != expected:
        raise BundleError(
            f"{packed.size} bytes are not the {expected} that {bits}-bit {list(shape)} takes; {_AGAIN}"
        )
    if bits > 8:
        plain = np.ascontiguousarray(packed).view(f"<i{bits // 8}")
        return plain.astype(f"=i{bits // 8}").reshape(shape)
    used = size * bits % 8
    if used and int(packed[-1]) >> used:
        raise BundleError(f"the {8 - used} padding bits after the last value are not zero; {_AGAIN}")
    return _signed(_fields(packed, bits, size), bits).reshape(shape)


def element_count(shape: Sequence[int]) -> int:
    """The number of elements of a shape; refuses shapes that no array can have."""
    if len(shape) > MAX_DIMENSIONS:
        raise BundleError(f"a shape of {len(shape)} dimensions is more than {MAX_DIMENSIONS}; use fewer")
    for dimension in shape:
        if isinstance(dimension, bool) or not isinstance(dimension, int | np.integer):
            raise BundleError(
                f"a dimension of type {type(dimension).__name__} is not a whole number; {_AGAIN}"
            )
        if dimension < 0 or dimension > _MAX_BYTES:
            raise BundleError(f"a dimension of {_short(int(dimension))} is not a size; {_AGAIN}")
    # An empty array must not hide a product that overflows (0 x 2^62 x 2^62).
    if math.prod(max(int(dimension), 1) for dimension in shape) > _MAX_BYTES // 8:
        raise BundleError(f"a shape of 2^60 elements or more is absurd; {_AGAIN}")
    return math.prod(int(dimension) for dimension in shape)


def packed_size(shape: Sequence[int], bits: int) -> int:
    """The number of bytes that an array of this shape takes at this width."""
    if not _allowed(bits):
        raise BundleError(f"a width of {_short(bits)} bits is not one of {_list(ALLOWED_BITS)}; {_AGAIN}")
    return _bytes(element_count(shape), bits)


def _fields(packed: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    """The fields of the stream, each in the low bits of one byte: [size]."""
    groups = -(-size // _GROUP)
    padded = np.zeros(groups * bits, np.uint8)
    padded[: packed.size] = packed
    wide = np.zeros((groups, _GROUP), np.uint8)
    wide[:, :bits] = padded.reshape(groups, bits)
    words = wide.view("<u8").reshape(groups)
    fields = np.empty((groups, _GROUP), np.uint8)
    for i in range(_GROUP):
        fields[:, i] = (words >> np.uint64(i * bits)) & np.uint64(_mask(bits))
    return fields.reshape(-1)[:size]


def _signed(fields: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    """Two's complement: move the sign bit to the top of the byte, then shift it back arithmetically."""
    unused = np.uint8(8 - bits)
    return (fields << unused).view(np.int8) >> unused.astype(np.int8)


def _check_range(flat: NDArray[Any], bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if flat.size == 0 or (int(flat.min()) >= low and int(flat.max()) <= high):
        return
    first = int(np.argmax((flat < low) | (flat > high)))
    raise ValueError(
        f"value {flat[first]} at flat index {first} does not fit {bits} signed bits; "
        f"keep values in [{low}, {high}] or use more bits"
    )


def _allowed(bits: object) -> bool:
    return isinstance(bits, int | np.integer) and not isinstance(bits, bool) and int(bits) in ALLOWED_BITS


def _bytes(size: int, bits: int) -> int:
    return (size * int(bits) + 7) // 8


def _mask(bits: int) -> np.uint8:
    return np.uint8((1 << bits) - 1)


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _short(value: object) -> str:
    """A value from a file, short enough for a message (Python refuses to print very long integers)."""
    if isinstance(value, int) and abs(value) > _MAX_BYTES:
        return "more than 2^63" if value > 0 else "less than -2^63"
    return repr(value)[:40]

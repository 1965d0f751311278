"""The bit stream against a slow oracle: one big integer, one bit at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptq4snn.bundle.packing import ALLOWED_BITS, pack, packed_size, unpack
from ptq4snn.errors import BundleError

WIDTHS = st.sampled_from(ALLOWED_BITS)


def oracle_pack(values: list[int], bits: int) -> bytes:
    """Bit j of the stream is bit j % 8 of byte j // 8: that is bit j of one little-endian integer."""
    stream = 0
    for i, value in enumerate(values):
        for j in range(bits):
            stream |= ((value >> j) & 1) << (i * bits + j)
    return stream.to_bytes((len(values) * bits + 7) // 8, "little")


def oracle_unpack(data: bytes, bits: int, size: int) -> list[int]:
    """Read every bit by its byte, the sign bit counting negative."""
    result = []
    for i in range(size):
        value = 0
        for j in range(bits):
            position = i * bits + j
            bit = (data[position // 8] >> (position % 8)) & 1
            value += -bit << j if j == bits - 1 else bit << j
        result.append(value)
    return result


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Values of any allowed width and shape, extremes likely, in any integer type that holds them."""
    bits = draw(WIDTHS)
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    size = int(np.prod(shape, dtype=int))
    values = draw(
        st.lists(st.integers(low, high) | st.sampled_from([low, high, 0]), min_size=size, max_size=size)
    )
    types = [t for t in ("i1", "i2", "<i4", ">i4", "i8") if np.iinfo(t).bits >= bits]
    return np.array(values, draw(st.sampled_from(types))).reshape(shape), bits


@settings(max_examples=300, deadline=None)
@given(arrays())
def test_pack_and_unpack_agree_with_the_oracle(case: tuple[np.ndarray, int]) -> None:
    values, bits = case
    flat = [int(value) for value in values.ravel()]
    packed = pack(values, bits)
    assert packed.dtype == np.uint8
    assert packed.tobytes() == oracle_pack(flat, bits)
    assert packed.size == packed_size(values.shape, bits)
    back = unpack(packed, bits, values.shape)
    assert back.dtype == {16: np.int16, 32: np.int32}.get(bits, np.int8)
    assert back.dtype.isnative
    assert back.shape == values.shape
    assert back.ravel().tolist() == flat == oracle_unpack(packed.tobytes(), bits, len(flat))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), WIDTHS, st.data())
def test_any_bytes_unpack_as_the_oracle_says_or_are_refused(
    data: bytes, bits: int, draw: st.DataObject
) -> None:
    fitting = len(data) * 8 // bits
    size = draw.draw(st.integers(max(0, fitting - 2), fitting + 2))
    right_length = len(data) == (size * bits + 7) // 8
    clean = right_length and int.from_bytes(data, "little") >> (size * bits) == 0
    packed = np.frombuffer(data, np.uint8)
    if clean:
        assert unpack(packed, bits, (size,)).tolist() == oracle_unpack(data, bits, size)
    else:
        with pytest.raises(BundleError, match="padding bits" if right_length else "bytes are not"):
            unpack(packed, bits, (size,))


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_value_at_every_position_of_a_group(bits: int) -> None:
    every = range(-(1 << (bits - 1)), 1 << (bits - 1))
    values = [v for shift in range(9) for v in itertools.chain([0] * (shift % 2), every)]
    packed = pack(np.array(values), bits)
    assert packed.tobytes() == oracle_pack(values, bits)
    assert unpack(packed, bits, (len(values),)).tolist() == values


@pytest.mark.parametrize(
    ("values", "bits", "data"),
    [
        ([-8, 7, 0, -1, 3], 4, "78f003"),
        ([-4, 3, 0, -1, 2], 3, "1c2e"),
        ([-1, 0, -1], 1, "05"),
        ([-2, 1, 0, -1, 1], 2, "c601"),
        ([-128, 127, -1], 8, "807fff"),
        ([-2, 258], 16, "feff0201"),
        ([-2147483648, 1], 32, "0000008001000000"),
    ],
)
def test_bytes_written_by_hand(values: list[int], bits: int, data: str) -> None:
    assert pack(np.array(values), bits).tobytes().hex() == data
    assert unpack(np.frombuffer(bytes.fromhex(data), np.uint8), bits, (len(values),)).tolist() == values


def test_arrays_that_are_not_contiguous_are_packed_row_major() -> None:
    values = np.arange(24).reshape(4, 6)[::2, ::-1].T - 8
    assert pack(values % 8, 4).tobytes() == oracle_pack((values % 8).ravel().tolist(), 4)


@given(WIDTHS, st.integers(0, 20), st.sampled_from([-1, 1]))
@example(8, 0, 1)
def test_the_first_value_out_of_range_is_named(bits: int, index: int, sign: int) -> None:
    bad = (1 << (bits - 1)) if sign > 0 else -(1 << (bits - 1)) - 1
    values = np.zeros(24, np.int64)
    values[index] = bad
    values[index + 1 :] = bad * 2
    with pytest.raises(
        ValueError, match=f"value {bad} at flat index {index} does not fit {bits} signed bits"
    ):
        pack(values, bits)


def test_unsigned_values_beyond_int64_are_out_of_range() -> None:
    with pytest.raises(ValueError, match=str(2**64 - 1)):
        pack(np.array([3, 2**64 - 1], np.uint64), 4)
    assert unpack(pack(np.array([7], np.uint64), 4), 4, (1,)).tolist() == [7]


@pytest.mark.parametrize("values", [np.array([1.0]), np.array([True]), np.array(["1"])])
def test_only_integers_are_packed(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="convert them to integers"):
        pack(values, 4)


@pytest.mark.parametrize("bits", [0, -1, 9, 15, 64, True, 4.0, None, "4"])
def test_other_widths_are_refused(bits: object) -> None:
    with pytest.raises(ValueError, match="bits cannot be packed"):
        pack(np.array([0]), bits)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="bits is not one of"):
        unpack(np.zeros(1, np.uint8), bits, (1,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ([-1], "-1 is not a size"),
        ([2**62, 4], "absurd"),
        ([2**32, 2**32], "absurd"),
        ([0, 2**62, 2**62], "absurd"),
        ([2**64], "not a size"),
        ([10**5000], "not a size"),
        ([-(10**5000)], "not a size"),
        ([1] * 33, "33 dimensions"),
        ([2.0], "type float"),
        ([True], "type bool"),
        (["2"], "type str"),
        ([None], "type NoneType"),
    ],
)
def test_impossible_shapes_are_refused(shape: list[int], match: str) -> None:
    with pytest.raises(BundleError, match=match):
        unpack(np.zeros(1, np.uint8), 4, shape)


@pytest.mark.parametrize("packed", [np.zeros((1, 2), np.uint8), np.zeros(2, np.int8)])
def test_packed_bytes_are_one_list_of_uint8(packed: np.ndarray) -> None:
    with pytest.raises(BundleError, match="list of uint8"):
        unpack(packed, 8, (2,))

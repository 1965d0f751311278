"""Damaged and forged files, generated here: each is refused in one sentence, or read as the same content."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptq4snn.bundle.format import Bundle, IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError

Tensors = dict[str, tuple[str, list[int], bytes]]
PLAN = '{"a":1}'
ARRAYS = '{"w":{"bits":4,"shape":[5]}}'
TENSORS: Tensors = {"s": ("F32", [1], b"\0\0\0?"), "w": ("U8", [3], b"\x78\xf0\x03")}


def checksum(version: str, plan: str, arrays: str, tensors: Tensors) -> str:
    """The definition in docs/format.md, written a second time."""
    fields = [version.encode(), plan.encode(), arrays.encode()]
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        fields += [name.encode(), dtype.encode(), json.dumps(shape).replace(" ", "").encode(), data]
    return hashlib.sha256(b"".join(struct.pack("<Q", len(field)) + field for field in fields)).hexdigest()


def forge(plan: str = PLAN, arrays: str = ARRAYS, tensors: Tensors = TENSORS, **metadata: Any) -> bytes:
    """A file whose checksum is right, whatever else is wrong; a metadata value of ... is left out."""
    keys: dict[str, Any] = {"format": "ptq4snn", "version": "3", "plan": plan, "arrays": arrays}
    keys |= {"sha256": checksum("3", plan, arrays, tensors), **metadata}
    header: dict[str, Any] = {"__metadata__": {key: value for key, value in keys.items() if value is not ...}}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    return frame(json.dumps(header).encode(), data)


def frame(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def reframe(change: Callable[[bytes], bytes]) -> bytes:
    """The good file with its header changed as text."""
    good = forge()
    length = struct.unpack("<Q", good[:8])[0]
    changed = change(good[8 : 8 + length])
    assert changed != good[8 : 8 + length]
    return frame(changed, good[8 + length :])


def entry(bits: Any, shape: Any) -> str:
    return json.dumps({"w": {"bits": bits, "shape": shape}})


def packed(data: bytes, shape: list[int] | None = None, dtype: str = "U8") -> Tensors:
    return {"w": (dtype, [len(data)] if shape is None else shape, data)}


ZEROS = packed(b"\0" * 3)
HUGE = 2**62
ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes are too few"),
    "seven bytes": (b"\x10" + b"\0" * 6, "7 bytes are too few"),
    "eight zero bytes": (bytes(8), "truncated"),
    "text": (b"This is a letter, not a model.", "not a safetensors file"),
    "zip": (b"PK\x03\x04" + bytes(60), "not a safetensors file"),
    "short header, not an object": (frame(b"[1, 2]"), "not a safetensors file"),
    "huge header": (struct.pack("<Q", 2**64 - 1) + b"{}", "not a safetensors file"),
    "header longer than the file": (struct.pack("<Q", 10**7) + b"{}", "header has 2 of 10000000 bytes"),
    "header not JSON": (frame(b"{'a': 1}"), "header is not usable JSON"),
    "header not UTF-8": (frame(b'{"\xff": 1}'), "header is not usable JSON"),
    "header nested": (frame(b'{"a":' + b"[" * 10**6), "header is not usable JSON .*recursion"),
    "header with a long integer": (frame(b'{"a":' + b"9" * 10**5 + b"}"), "header is not usable JSON"),
    "no metadata": (frame(b"{}"), "metadata 'format' is missing"),
    "metadata not an object": (frame(b'{"__metadata__":"x"}'), "metadata 'format' is missing"),
    "another format": (forge(format="pt"), "format is 'pt', not 'ptq4snn'; give"),
    "endless format": (forge(format="x" * 10**6), "not 'ptq4snn'; give"),
    "newer": (forge(version="4"), "has version 4 and this library reads version 3; install a newer"),
    "older": (forge(version="0"), "has version 0 and this library reads version 3; write the bundle again"),
    "newer, other keys": (forge(version="12", layout="x", sha256=...), "has version 12"),
    "strange version": (forge(version="1.0"), "version '1.0' is not a number"),
    "version as a number": (forge(version=1), "version 1 is not a number"),
    "long version": (forge(version="9" * 9999), "is not a number"),
    "no version": (forge(version=...), "metadata 'version' is missing"),
    "no sum": (forge(sha256=...), "metadata 'sha256' is missing"),
    "no plan": (reframe(lambda h: h.replace(b'"plan"', b'"plam"')), "metadata 'plan' is missing"),
    "no arrays": (reframe(lambda h: h.replace(b'"arrays"', b'"arrey"')), "metadata 'arrays' is missing"),
    "plan is null": (reframe(lambda h: h.replace(rb'"{\"a\":1}"', b"null")), "metadata 'plan' is missing"),
    "unknown key": (forge(note="x"), "unknown key 'note'"),
    "wrong sum": (forge(sha256="0" * 64), "altered"),
    "sum in capitals": (forge(sha256=checksum("3", PLAN, ARRAYS, TENSORS).upper()), "altered"),
    "plan altered": (reframe(lambda h: h.replace(rb"\"a\":1", rb"\"a\":2")), "altered"),
    "float renamed": (reframe(lambda h: h.replace(b'"s": {', b'"t": {')), "altered"),
    "float reshaped": (reframe(lambda h: h.replace(b'"shape": [1]', b'"shape": [1, 1]')), "altered"),
    "plan not JSON": (forge(plan="{"), "the plan is not usable JSON"),
    "plan empty": (forge(plan=""), "the plan is not usable JSON"),
    "plan a list": (forge(plan="[]"), "the plan is JSON but not an object"),
    "plan NaN": (forge(plan='{"a":NaN}'), "NaN is not a finite number"),
    "plan -Infinity": (forge(plan='{"a":-Infinity}'), "-Infinity is not a finite number"),
    "plan 1e999": (forge(plan='{"a":1e999}'), "1e999 is not a finite number"),
    "plan nested": (
        forge(plan='{"a":' + "[" * 10**5 + "]" * 10**5 + "}"),
        "the plan is not usable JSON .*recursion",
    ),
    "plan nested less": (forge(plan='{"a":' + "[" * 150 + "]" * 150 + "}"), "deeper than 100 levels"),
    "plan repeats": (forge(plan='{"b":{"a":1,"a":1}}'), "the plan repeats the name 'a'"),
    "arrays not JSON": (forge(arrays="w"), "the list of arrays is not usable JSON"),
    "arrays a list": (forge(arrays="[]"), "the list of arrays is JSON but not an object"),
    "arrays repeat": (forge(arrays=f"{ARRAYS[:-1]},{ARRAYS[1:]}"), "the list of arrays repeats the name 'w'"),
    "header repeats": (reframe(lambda h: h.replace(b'"s": {', b'"w": {')), "header repeats the name 'w'"),
    "metadata repeats": (
        reframe(lambda h: h.replace(b'"plan"', b'"arrays"')),
        "header repeats the name 'arrays'",
    ),
    "array missing": (forge(arrays="{}"), "'w' is not described"),
    "tensor missing": (forge(arrays=ARRAYS.replace("w", "x"), tensors={}), "'x' is described but not stored"),
    "float described": (forge(arrays=ARRAYS.replace("w", "s")), "'s' is described but not stored as U8"),
    "entry a list": (forge(arrays='{"w":[4,[5]]}'), "not exactly bits and a shape"),
    "entry without bits": (forge(arrays='{"w":{"shape":[5]}}'), "not exactly bits and a shape"),
    "entry with more": (forge(arrays='{"w":{"bits":4,"shape":[5],"x":0}}'), "not exactly bits and a shape"),
    "shape a number": (forge(arrays=entry(4, 5)), "not exactly bits and a shape"),
    "shape text": (forge(arrays=entry(4, "5")), "not exactly bits and a shape"),
    "shape of text": (forge(arrays=entry(4, ["5"])), "dimension of type str"),
    "shape of floats": (forge(arrays=entry(4, [5.0])), "dimension of type float"),
    "shape of booleans": (forge(arrays=entry(8, [3, True]), tensors=ZEROS), "dimension of type bool"),
    "negative dimension": (forge(arrays=entry(4, [-5])), "-5 is not a size"),
    "two negative dimensions": (forge(arrays=entry(8, [-1, -3]), tensors=ZEROS), "-1 is not a size"),
    "product overflows to 0": (forge(arrays=entry(8, [HUGE, 4]), tensors=packed(b"")), "absurd"),
    "product overflows, empty": (forge(arrays=entry(8, [0, HUGE, HUGE]), tensors=packed(b"")), "absurd"),
    "terabytes": (forge(arrays=entry(8, [2**40])), f"3 bytes are not the {2**40}"),
    "many dimensions": (forge(arrays=entry(8, [1] * 500 + [3]), tensors=ZEROS), "501 dimensions"),
    "long dimension": (forge(arrays='{"w":{"bits":4,"shape":[' + "9" * 4000 + "]}}"), "not a size"),
    "longer dimension": (forge(arrays='{"w":{"bits":4,"shape":[' + "9" * 5000 + "]}}"), "not usable JSON"),
    "too few bytes": (forge(arrays=entry(4, [7])), "3 bytes are not the 4"),
    "too many bytes": (forge(arrays=entry(4, [4])), "3 bytes are not the 2"),
    "another width": (forge(arrays=entry(3, [5])), "3 bytes are not the 2"),
    "padding": (forge(tensors=packed(b"\x78\xf0\x13")), "4 padding bits"),
    "U8 of two dimensions": (forge(tensors=packed(b"\0" * 3, [1, 3])), "list of uint8"),
    "U8 with huge dimensions": (forge(arrays=entry(4, [0]), tensors=packed(b"", [0, HUGE, HUGE])), "absurd"),
    "float with huge dimensions": (forge(arrays="{}", tensors=packed(b"", [0, HUGE, HUGE], "F32")), "absurd"),
    **{
        f"bits {bits!r}": (forge(arrays=entry(bits, [5])), "bits is not one of")
        for bits in (0, -4, 9, 12, 64, 4.0, "4", None, True, [4], 10**30)
    },
    **{
        f"dtype {dtype}": (
            forge(arrays="{}", tensors=packed(bytes(8), [8 // size], dtype)),
            f"type is {dtype}",
        )
        for dtype, size in (("I8", 1), ("BF16", 2), ("I32", 4), ("I64", 8), ("BOOL", 1))
    },
    "unknown dtype": (reframe(lambda h: h.replace(b'"F32"', b'"F33"')), "truncated or altered"),
    "gap": (reframe(lambda h: h.replace(b"[4, 7]", b"[5, 7]")), "truncated or altered"),
    "overlap": (reframe(lambda h: h.replace(b"[4, 7]", b"[3, 6]")), "truncated or altered"),
    "beyond the end": (reframe(lambda h: h.replace(b"[4, 7]", b"[4, 8]")), "truncated or altered"),
    "reversed offsets": (reframe(lambda h: h.replace(b"[4, 7]", b"[7, 4]")), "truncated or altered"),
    "more data": (forge() + b"\0", "truncated or altered"),
    "less data": (forge()[:-1], "truncated or altered"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    content, match = ATTACKS[name]
    path = tmp_path / "model.ptq"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=match) as caught:
        read_bundle(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "; " in message, "it says what to do"
    assert "\n" not in message
    assert len(message) < len(str(path)) + 500


def test_the_forger_can_write_a_good_file(tmp_path: Path) -> None:
    """Otherwise every attack above might be refused for another reason; the order of keys is free."""
    (tmp_path / "model.ptq").write_bytes(forge())
    bundle = read_bundle(tmp_path / "model.ptq")
    assert (bundle.plan, bundle.integers["w"].bits) == ({"a": 1}, 4)
    assert bundle.integers["w"].values.tolist() == [-8, 7, 0, -1, 3]
    assert bundle.floats["s"].tolist() == [0.5]


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    paths: list[Any] = [tmp_path, tmp_path / "missing", f"{tmp_path}/null\0byte"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
        paths.append(tmp_path / "pipe")
    for path in paths:
        with pytest.raises(BundleError, match="not a file; give the path"):
            read_bundle(path)


def good(tmp_path: Path) -> tuple[Path, bytes, object]:
    path = tmp_path / "model.ptq"
    w = IntegerArray(np.arange(-4, 3), 3)
    write_bundle(
        path, {"k": [1, 2.5], "x": "y"}, {"w": w}, {"s": np.ones(2, np.float32), "é": np.ones((1, 1))}
    )
    return path, path.read_bytes(), content_of(read_bundle(path))


def content_of(bundle: Bundle) -> object:
    arrays = {name: (array.values, array.bits) for name, array in bundle.integers.items()}
    arrays |= {name: (values, 0) for name, values in bundle.floats.items()}
    return bundle.plan, {name: (v.dtype, v.shape, v.tobytes(), bits) for name, (v, bits) in arrays.items()}


def refused_or_same(path: Path, content: bytes, expected: object) -> bool:
    """Whether it is refused; anything read must be the content written."""
    path.write_bytes(content)
    try:
        bundle = read_bundle(path)
    except BundleError:
        return True
    assert content_of(bundle) == expected
    return False


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path, content, expected = good(tmp_path)
    assert all(refused_or_same(path, content[:length], expected) for length in range(len(content)))


def test_every_flipped_bit_and_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    path, content, expected = good(tmp_path)
    refused = 0
    masks = [0x01, 0x20, 0x80, 0xFF, 0x29]  # 0x29 makes a tab of a space: harmless padding
    for position in range(len(content)):
        for mask in masks:
            changed = bytearray(content)
            changed[position] ^= mask
            refused += refused_or_same(path, bytes(changed), expected)
    harmless = len(content) * len(masks) - refused
    assert harmless <= 8  # the padding of the header alone


def test_every_lost_repeated_or_swapped_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    path, content, expected = good(tmp_path)
    for i in range(0, len(content), 2):
        refused_or_same(path, content[:i] + content[i + 1 :], expected)
        refused_or_same(path, content[: i + 1] + content[i:], expected)
        refused_or_same(path, content[:i] + content[i : i + 2][::-1] + content[i + 2 :], expected)

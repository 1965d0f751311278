"""The bundle: one safetensors file with packed integers, and a versioned plan in its metadata.

`docs/format.md` specifies every byte. Reading needs numpy and safetensors; nothing in a file is executed.
The header is written here because safetensors writes metadata in random order (the same content must give the
same bytes), and is parsed here as well as by safetensors because that library accepts repeated names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from ptq4snn.bundle.packing import element_count, pack, unpack
from ptq4snn.errors import BundleError, OutputError
from ptq4snn.files import write_whole

__all__ = ["FORMAT", "FORMAT_VERSION", "JSON", "Bundle", "IntegerArray", "read_bundle", "write_bundle"]

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

FORMAT: Final = "ptq4snn"
FORMAT_VERSION: Final = "3"
MAX_HEADER_BYTES: Final = 2**24  # of plan and names together: JSON takes up to 28 times the memory
MAX_DEPTH: Final = 100  # levels of the plan
UNPACKING: Final = 5  # bytes at once for a number of 8 bits or fewer

_KEYS: Final = ("arrays", "format", "plan", "sha256", "version")
# Wide types come first in the file, so that every tensor is aligned; U8 holds the packed integers.
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "U8": "|u1"}
_AGAIN: Final = "write the bundle again"
_COPY: Final = f"copy the file again or {_AGAIN}"
_OTHER: Final = "give the path of a bundle that ptq4snn wrote"


@dataclass(frozen=True, eq=False)
class IntegerArray:
    """Integers and the width, 1..8, 16 or 32 signed bits, that they are stored with."""

    values: NDArray[Any]
    bits: int


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a bundle holds: the plan (JSON), integer arrays and float arrays, by name."""

    plan: dict[str, Any]
    integers: dict[str, IntegerArray]
    floats: dict[str, NDArray[Any]]


class _Tensor(NamedTuple):
    """One tensor of the file: its type (a key of _TYPES), its shape, its little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray


def write_bundle(
    path: str | os.PathLike[str],
    plan: Mapping[str, JSON],
    integers: Mapping[str, IntegerArray],
    floats: Mapping[str, NDArray[Any]],
) -> None:
    """Write a bundle all at once: on any failure `path` is as before and nothing else is left behind."""
    with _about(os.fspath(path)):
        tensors = _encode(integers, floats)
        arrays = {name: {"bits": int(a.bits), "shape": a.values.shape} for name, a in integers.items()}
        metadata = {"arrays": _canonical(arrays), "plan": _canonical(dict(plan)), "version": FORMAT_VERSION}
        _check_plan(dict(plan))
        metadata |= {"format": FORMAT, "sha256": _checksum(metadata, tensors)}
        header = _header(metadata, tensors)
        prefix = len(header).to_bytes(8, "little")
        parts = [prefix, header, *(tensor.data for tensor in tensors.values())]
        write_whole(Path(path), parts, sync=True)


def read_bundle(path: str | os.PathLike[str], most: int | None = None) -> Bundle:
    """Read a bundle; refuse, in one sentence, whatever differs from what `write_bundle` writes.

    most: bytes of memory that the file and its arrays, while they are unpacked, may take.
    """
    with _about(os.fspath(path)):
        if not Path(path).is_file():
            raise BundleError(f"this is not a file; {_OTHER}")
        _within(Path(path).stat().st_size, most)
        with Path(path).open("rb") as file:
            metadata, content = _load(file)
        tensors = _tensors(content)
        if metadata["sha256"] != _checksum(metadata, tensors):
            raise BundleError(f"the content was altered, for its sha256 does not match; {_COPY}")
        plan, arrays = _parse(metadata["plan"], "the plan"), _parse(metadata["arrays"], "the list of arrays")
        _check_plan(plan)
        _within(len(content) + sum(_unpacked(arrays.get(name), t) for name, t in tensors.items()), most)
        return Bundle(plan, *_decode(arrays, tensors))


def _within(needed: int, most: int | None) -> None:
    if most is not None and needed > most:
        raise BundleError(
            f"reading it takes {needed:,} bytes of memory, more than the {most:,} allowed; raise the limit "
            "if you trust the file"
        )


def _unpacked(entry: Any, tensor: _Tensor) -> int:
    """Bytes that a tensor takes while it is unpacked; `entry` is not checked yet."""
    bits = entry.get("bits") if isinstance(entry, dict) else None
    if isinstance(bits, int) and 1 <= bits <= 8:
        return len(tensor.data) * 8 // bits * UNPACKING
    return 2 * len(tensor.data)


def _load(file: IO[bytes]) -> tuple[dict[str, str], bytes]:
    """The checked metadata and the whole content; the header is checked before the rest is read."""
    prefix = file.read(8)
    if len(prefix) < 8:
        raise BundleError(f"{len(prefix)} bytes are too few for a bundle, so it is truncated; {_COPY}")
    length = int.from_bytes(prefix, "little")
    text = file.read(length) if length <= MAX_HEADER_BYTES else b"too long"
    if text[:1] not in (b"{", b""):
        raise BundleError(f"this is not a safetensors file; {_OTHER}")
    if len(text) < length or not text:
        raise BundleError(f"the header has {len(text)} of {length} bytes, so the file is truncated; {_COPY}")
    return _metadata(_parse(text, "the safetensors header")), prefix + text + file.read()


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    """The metadata of a bundle of this version; format and version come first, for they decide the rest."""
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or "format" not in metadata:
        raise BundleError(f"the metadata 'format' is missing, so this is no bundle; {_OTHER}")
    if metadata["format"] != FORMAT:
        raise BundleError(f"the format is {reprlib.repr(metadata['format'])}, not {FORMAT!r}; {_OTHER}")
    version, known = metadata.get("version"), f"this library reads version {FORMAT_VERSION}"
    if "version" in metadata and version != FORMAT_VERSION:
        if not (isinstance(version, str) and version.isascii() and version.isdigit() and len(version) < 10):
            raise BundleError(f"the version {reprlib.repr(version)} is not a number and {known}; {_COPY}")
        remedy = "install a newer ptq4snn" if int(version) > int(FORMAT_VERSION) else _AGAIN
        raise BundleError(f"the bundle has version {version} and {known}; {remedy}")
    for key in _KEYS:
        if not isinstance(metadata.get(key), str):
            raise BundleError(f"the metadata {key!r} is missing or not a string; {_COPY}")
    if unknown := sorted(set(metadata) - set(_KEYS)):
        raise BundleError(f"the metadata has an unknown key {reprlib.repr(unknown[0])}; {_COPY}")
    return metadata


def _tensors(content: bytes) -> dict[str, _Tensor]:
    """All tensors; safetensors checks that they cover the file without gap or overlap."""
    try:
        stored = deserialize(content)  # type: ignore[no-untyped-call,unused-ignore]
    except SafetensorError as error:
        raise BundleError(f"the tensors are truncated or altered ({error}); {_COPY}") from error
    return {name: _Tensor(t["dtype"], tuple(t["shape"]), t["data"]) for name, t in stored}


def _decode(
    arrays: Mapping[str, Any], tensors: Mapping[str, _Tensor]
) -> tuple[dict[str, IntegerArray], dict[str, NDArray[Any]]]:
    """The integer arrays, which `arrays` must describe one by one, and the float arrays."""
    packed = {name for name, tensor in tensors.items() if tensor.dtype == "U8"}
    for name in sorted(packed ^ arrays.keys()):
        problem = "is not described in 'arrays'" if name in packed else "is described but not stored as U8"
        raise BundleError(f"integer array {reprlib.repr(name)} {problem}; {_AGAIN}")
    integers, floats = {}, {}
    for name, tensor in sorted(tensors.items()):
        with _about(f"array {reprlib.repr(name)}"):
            if tensor.dtype not in _TYPES:
                raise BundleError(f"its type is {tensor.dtype}, not U8, F32 or F64; {_AGAIN}")
            element_count(tensor.shape)
            stored = np.frombuffer(tensor.data, _TYPES[tensor.dtype]).reshape(tensor.shape)
            if name in packed:
                integers[name] = _integers(arrays[name], stored)
            else:
                floats[name] = stored.astype(stored.dtype.newbyteorder("="))
    return integers, floats


def _integers(entry: object, packed: NDArray[np.uint8]) -> IntegerArray:
    """Unpack one array as its entry {"bits": 4, "shape": [2, 3]} says."""
    if not isinstance(entry, dict) or entry.keys() != {"bits", "shape"} or type(entry["shape"]) is not list:
        raise BundleError(f"its entry in 'arrays' is not exactly bits and a shape; {_AGAIN}")
    return IntegerArray(unpack(packed, entry["bits"], entry["shape"]), entry["bits"])


def _encode(integers: Mapping[str, IntegerArray], floats: Mapping[str, NDArray[Any]]) -> dict[str, _Tensor]:
    """Every array as it is stored, in the order of the file: by type, then by name."""
    tensors: dict[str, _Tensor] = {}
    for name in (*integers, *floats):
        with _about(f"array {name!r}"):
            if not isinstance(name, str) or name in ("", "__metadata__"):
                raise BundleError("this cannot be a name; use text that is not empty nor '__metadata__'")
            if name in tensors:
                raise BundleError("the name is both an integer and a float array; rename one")
            values = integers[name].values if name in integers else floats[name]
            element_count(values.shape)
            if name in integers:
                values = pack(values, integers[name].bits)
            elif values.dtype.name not in ("float64", "float32"):
                raise BundleError(f"its type is {values.dtype}; convert it to float32 or float64")
            dtype = {8: "F64", 4: "F32", 1: "U8"}[values.itemsize]
            tensors[name] = _Tensor(dtype, values.shape, values.astype(_TYPES[dtype]).tobytes())
    return dict(sorted(tensors.items(), key=lambda item: ([*_TYPES].index(item[1].dtype), item[0])))


def _header(metadata: Mapping[str, str], tensors: Mapping[str, _Tensor]) -> bytes:
    """The safetensors header, its keys in a fixed order, padded with spaces to a multiple of 8 bytes."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    begin = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"data_offsets": [begin, begin + len(data)], "dtype": dtype, "shape": shape}
        begin += len(data)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise BundleError(f"plan and names exceed {MAX_HEADER_BYTES} bytes; move numbers into arrays")
    return text


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Begin the message of an error with the file or array that it is about."""
    try:
        yield
    except OSError as error:
        raise BundleError(f"{what}: {error.strerror or error}; check the path, rights and space") from error
    except OutputError as error:  # names its file already
        raise BundleError(str(error)) from error
    except (BundleError, ValueError) as error:
        raise BundleError(f"{what}: {error}") from error


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, _Tensor]) -> str:
    """SHA-256 of version, plan, arrays; then name, type, shape, bytes per tensor; each after its length."""
    fields: list[bytes | bytearray] = [metadata[key].encode() for key in ("version", "plan", "arrays")]
    for name, (dtype, shape, data) in sorted(tensors.items()):
        fields += [name.encode(), dtype.encode(), _canonical(shape).encode(), data]
    digest = hashlib.sha256()
    for field in fields:
        digest.update(len(field).to_bytes(8, "little"))
        digest.update(field)
    return digest.hexdigest()


def _canonical(value: object) -> str:
    """One text for one value: sorted keys, no spaces, ASCII, no NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"the plan is not JSON ({error}); use finite numbers, text, lists, dicts"
        ) from error


def _check_plan(plan: object) -> None:
    """Keys are strings and nesting is bounded, checked level by level, without recursion."""
    level = [plan]
    for _ in range(MAX_DEPTH):
        children: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(isinstance(key, str) for key in item):
                    raise BundleError("the plan has a key that is not a string; use strings")
                children += item.values()
            elif isinstance(item, list | tuple):
                children += item
        level = children
    if level:
        raise BundleError(f"the plan is nested deeper than {MAX_DEPTH} levels; make it flatter")


def _parse(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object from a file: no repeated name, no NaN or infinity, no unbounded nesting."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                raise BundleError(f"{what} repeats the name {reprlib.repr(name)}; {_AGAIN}")
            seen[name] = value
        return seen

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number[:20]} is not a finite number")
        return value

    try:  # bytes are decoded here, for json would accept UTF-16 as well
        text = text if isinstance(text, str) else text.decode("utf-8")
        result = json.loads(text, object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{what} is not usable JSON ({error}); {_COPY}") from error
    if not isinstance(result, dict):
        raise BundleError(f"{what} is JSON but not an object; {_COPY}")
    return result

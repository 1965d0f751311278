"""Seeded changes of formats that have a structure of their own: bundles and states that are signed again,
graphs of NIR, recordings of events, CIFAR's pickles, images."""

from __future__ import annotations

import io
import pickle
import random
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.trees import changed

from ptq4snn.bundle.format import IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError

__all__ = ["OTHERS"]

NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


def _other_bundle(r: random.Random, data: bytes) -> bytes:
    """The plan's tree or one array changed, and the checksum made anew."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b"
        path.write_bytes(data)
        bundle = read_bundle(path)
        plan, integers = bundle.plan, dict(bundle.integers)
        if r.random() < 0.7:
            plan = changed(r, plan)
        if r.random() < 0.4 and integers:
            name = r.choice(sorted(integers))
            integers[name] = _other_integers(r, integers[name])
            if r.random() < 0.3:
                integers[r.choice(("rows/99", "sums/x", "zz", "rows/-1"))] = integers.pop(name)
        try:
            write_bundle(path, plan if isinstance(plan, dict) else {"plan": plan}, integers, bundle.floats)
        except (BundleError, TypeError, ValueError, UnicodeEncodeError, OverflowError):
            return data[: r.randrange(len(data))]
        return path.read_bytes()


def _other_integers(r: random.Random, a: IntegerArray) -> IntegerArray:
    values = np.array(a.values)
    how = r.random()
    if how < 0.4 and values.size:
        values.reshape(-1)[r.randrange(values.size)] = r.choice(
            (0, -(2 ** (a.bits - 1)), 2 ** (a.bits - 1) - 1)
        )
        return IntegerArray(values, a.bits)
    if how < 0.6:
        return IntegerArray(values[:-1], a.bits)
    if how < 0.8:
        return IntegerArray(values.reshape(-1), a.bits)
    return IntegerArray(values, 32)


def _other_nir(r: random.Random, data: bytes) -> bytes:
    """One set of the HDF5 tree has another value, type or shape, or is gone, or a group stands there."""
    import h5py

    file = io.BytesIO(data)
    with h5py.File(file, "r+") as f:
        for _ in range(r.choice((1, 1, 2))):
            names: list[str] = []
            f.visit(names.append)
            if not names:
                break
            name = r.choice(names)
            old = f[name]
            value = old[()] if isinstance(old, h5py.Dataset) else None
            del f[name]
            how = r.random()
            if how < 0.15:
                continue
            if how < 0.25:
                f.create_dataset(name, r.choice(((2**40,), (2**30, 2**20), (0,), (3, 0, 5))), "<f8")
            elif how < 0.3:
                f.create_group(name)
            elif how < 0.5:
                f[name] = r.choice((b"LIF", b"Affine", b"NIRGraph", b"Input", b"", b"x" * 300, b"\xff", "é"))
            elif how < 0.8 and isinstance(value, np.ndarray) and value.size:
                f[name] = _other_array(r, value)
            else:
                odd = (0, -1, 3.5, np.nan, np.inf, np.zeros((0, 3)), np.zeros((1, 1, 1, 1, 1)), True, 2**40)
                f[name] = r.choice(odd)
    return file.getvalue()


def _other_array(r: random.Random, value: Any) -> Any:
    if value.dtype.kind not in "fiu":
        return value[:-1]
    other = np.array(value)
    how = r.random()
    if how < 0.4:
        other.reshape(-1)[r.randrange(other.size)] = r.choice((0, 1, 100))
        return other
    if how < 0.6 and value.dtype.kind == "f":
        return np.where(other == other.reshape(-1)[0], r.choice((np.nan, np.inf, -1e300, 0.0)), other)
    return (
        r.choice((other[:-1], other.reshape(-1), other[None], other.astype(complex)))
        if other.ndim
        else other[None]
    )


def _other_events(size: int, begins: Callable[[bytes], int]) -> Callable[[random.Random, bytes], bytes]:
    """Events of `size` bytes behind a header: other fields, more, fewer, none, half of one; other lines."""

    def other(r: random.Random, data: bytes) -> bytes:
        start = begins(data)
        head, body = data[:start], bytearray(data[start:])
        how = r.random()
        if how < 0.6:
            for _ in range(r.choice((1, 3, 20))):
                at = size * r.randrange(max(1, len(body) // size))
                body[at : at + size] = r.choice(NUMBERS).to_bytes(8, "big")[-4:] * (size // 4) + bytes(
                    size % 4
                )
        elif how < 0.7:
            body *= r.choice((0, 2, 50))
        elif how < 0.8:
            body = body[: r.randrange(len(body) + 1)]
        else:
            lines = (b"#", b"#\n", b"# " + b"x" * 5000 + b"\n", b"#!AER-DAT3.1\r\n", b"#\x00\n", b"\n")
            head = r.choice((b"", head, head[:12])) + r.choice(lines)
        return head + bytes(body)

    return other


def _aedat_begins(data: bytes) -> int:
    start = 0
    while data[start : start + 1] == b"#":
        start = (data.find(b"\n", start) + 1) or len(data)
    return start


def _other_cifar(r: random.Random, data: bytes) -> bytes:
    """Another dictionary, pickled by any protocol: what is in it, its array's shape and type."""
    tree = pickle.loads(data)
    key = r.choice(sorted(tree))
    odd: tuple[Any, ...] = (
        np.zeros((4, 3071), np.uint8), np.zeros(3072, np.uint8), np.zeros((4, 3072)), {}, None, b"x",
        np.zeros((0, 3072), np.uint8), np.array(["a"]), np.array([None]), [1, 2], [1, 2, 3, 2**70],
        [1, 2, 3, "x"], [1, 2, 3, -1], np.zeros((4, 3072), np.uint8).T, np.array([1 + 2j]),
        [[1], [2], [3], [4]], np.random.default_rng,
    )  # fmt: skip
    how = r.random()
    if how < 0.15:
        del tree[key]
    elif how < 0.85:
        tree[key] = r.choice(odd)
    else:
        tree = r.choice(([tree], None, {1: 2}, {b"data": tree}, {"labels": [1], "data": tree[b"data"][:1]}))
    return pickle.dumps(tree, r.randrange(5))


def _other_png(r: random.Random, data: bytes) -> bytes:
    """Chunks changed, lost, doubled or exchanged, with checksums that are right; other sizes and modes."""
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    i = r.randrange(len(chunks))
    kind, body = chunks[i]
    how = r.random()
    if how < 0.4 or kind == b"IHDR":
        width, height, depth, mode = struct.unpack(">IIBB", chunks[0][1][:10])
        sides = (0, 1, width, 3, 5000, 65535, 2**31 - 1)
        shape = (r.choice(sides), r.choice((height, *sides)), r.choice((depth, 1, 2, 4, 16)), mode)
        chunks[0] = (b"IHDR", struct.pack(">IIBB", *shape) + chunks[0][1][10:])
    elif how < 0.6:
        chunks[i] = (kind, body[: r.randrange(len(body) + 1)])
    elif how < 0.7:
        del chunks[i]
    elif how < 0.8:
        chunks.insert(i, chunks[i])
    else:
        kinds = (b"tEXt", b"PLTE", b"tRNS", b"IDAT", b"acTL", b"iCCP", b"zTXt")
        chunks.insert(i, (r.choice(kinds), bytes(r.randrange(9))))
    out = [data[:8]]
    for kind, body in chunks:
        out.append(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(out)


OTHERS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    ".ptq": _other_bundle,
    ".state": _other_bundle,
    ".nir": _other_nir,
    ".aedat": _other_events(8, _aedat_begins),
    ".bin": _other_events(5, lambda data: 0),
    ".cifar": _other_cifar,
    ".png": _other_png,
}

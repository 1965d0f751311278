"""Seeded changes of files: of bytes, and of what their format holds."""

from __future__ import annotations

import io
import json
import random
import zipfile

from fuzz.structures import OTHERS
from fuzz.trees import changed

__all__ = ["damaged", "restructured"]

PIECES = (
    b"9" * 20, b"-", b"(", b"[" * 50, b"{", b"R", b"\x80\x05", b"c\n", b"e308", b"nan", b"\xff" * 8,
    b"\0" * 8,    b"'shape': (99999999999,)", b"\n", b'"', b"1_0", b"inf", b"= [[", b"\x7fELF",
)  # fmt: skip
TYPES = (
    "<f4",
    ">f8",
    "<f2",
    "|b1",
    "<c8",
    "<U3",
    "|S4",
    "<M8[s]",
    "<u8",
    "|i1",
    "V3",
    "[('a', '<f4')]",
    "|O",
)
SHAPES = (
    "()",
    "(0,)",
    "(-1, 3)",
    "(2000000000, 0)",
    "(10000000000000,)",
    "(3,)",
    "(1, 2, 3, 4, 5, 6)",
    "[3]",
    "3",
)


def damaged(r: random.Random, data: bytes) -> bytes:
    """Bits, bytes, pieces lost, doubled and put in, mostly near the beginning."""
    b = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 6))):
        b = b or bytearray(b"\0")
        at = r.randrange(min(len(b), 160) if r.random() < 0.4 else len(b))
        how = r.random()
        if how < 0.35:
            b[at] ^= 1 << r.randrange(8)
        elif how < 0.55:
            b[at] = r.randrange(256)
        elif how < 0.7:
            del b[at : at + r.choice((1, 5, 100))]
        elif how < 0.85:
            b[at:at] = r.choice(PIECES)
        elif how < 0.95:
            b = b[:at]
        else:
            b += b[:at]
    return bytes(b)


def restructured(r: random.Random, suffix: str, data: bytes) -> bytes:
    """Valid to its parser, or nearly, and of other content."""
    if suffix == ".json":
        return json.dumps(changed(r, json.loads(data))).encode()
    if suffix == ".safetensors":
        return _other_safetensors(r, data)
    if suffix == ".npy":
        return _other_npy(r, data)
    if suffix in (".npz", ".pt"):
        return _other_zip(r, data)
    if suffix == ".toml":
        return _other_toml(r, data)
    return OTHERS.get(suffix, damaged)(r, data)


def _other_safetensors(r: random.Random, data: bytes) -> bytes:
    size = int.from_bytes(data[:8], "little")
    head = json.dumps(changed(r, json.loads(data[8 : 8 + size]))).encode()
    return len(head).to_bytes(8, "little") + head + data[8 + size :]


def _other_npy(r: random.Random, data: bytes) -> bytes:
    kind, shape = r.choice(TYPES), r.choice(SHAPES)
    kind = kind if kind.startswith("[") else repr(kind)
    order = r.choice(("True", "False", "3"))
    head = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data[128:]


def _other_zip(r: random.Random, data: bytes) -> bytes:
    """One member damaged, lost, doubled, emptied or of another type, the archive whole."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = r.choice(old.namelist())
        for name in old.namelist():
            part = old.read(name)
            how = r.random() if name == chosen else 1.0
            if how < 0.15:
                continue
            if how < 0.6:
                part = damaged(r, part)
            elif how < 0.7:
                part = b""
            elif how < 0.99:
                part = _other_npy(r, part) if name.endswith(".npy") else damaged(r, part)
            new.writestr(name, part)
    return out.getvalue()


def _other_toml(r: random.Random, data: bytes) -> bytes:
    values = (
        "nan", "inf", "-1", "1e400", "99999999999999999999", "[]", "''", "[[2]]", "{}", "true", "1979-05-27",
        "4.5", "0",
        "['gptq']", '"\\u0000"', "[" * 2000, "{a=" * 500, "{a.b.c = 1}", "[nan]",
    )  # fmt: skip
    names = (
        "weights",
        "membrane",
        "rounding",
        "widths",
        "overrides",
        "seed",
        "calibration",
        "beta_grid",
        "zz",
        "micro_batch",
    )
    lines = data.decode().split("\n")
    lines.insert(r.randrange(len(lines)), f"{r.choice(names)} = {r.choice(values)}")
    if r.random() < 0.7:
        del lines[r.randrange(len(lines))]
    return "\n".join(lines).encode()

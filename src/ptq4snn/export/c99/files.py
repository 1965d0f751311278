"""Weights as files for other flows: raw bytes, Verilog's $readmemh, Intel HEX."""

from __future__ import annotations

import numpy as np

from ptq4snn.export.c99.context import Context

__all__ = ["FORMS", "weight_file"]

FORMS = ("c", "bin", "mem", "hex")
RECORD = 16  # bytes of a line of Intel HEX


def weight_file(ctx: Context, form: str) -> bytes:
    """All words, layer after layer, little-endian."""
    arrays = [packed.words for _, packed in ctx.weights.values()]
    words = np.concatenate(arrays) if arrays else np.zeros(0, np.uint32)
    if form == "mem":
        lines = [f"// {ctx.name}: {len(words)} words of 32 bits"]
        begin = 0
        for symbol, packed in ctx.weights.values():
            lines.append(f"// {symbol}: {packed.bits} bits, {packed.row} words a row")
            lines += [f"@{begin:X}", *(f"{int(w):08X}" for w in packed.words)]
            begin += len(packed.words)
        return ("\n".join(lines) + "\n").encode()
    raw = words.astype("<u4").tobytes()
    return raw if form == "bin" else _intel_hex(raw)


def _intel_hex(data: bytes) -> bytes:
    lines = []
    for at in range(0, len(data), RECORD):
        if at % 2**16 == 0:
            lines.append(_record(0, 4, (at >> 16).to_bytes(2, "big")))
        lines.append(_record(at % 2**16, 0, data[at : at + RECORD]))
    return ("\n".join([*lines, ":00000001FF"]) + "\n").encode()


def _record(address: int, kind: int, data: bytes) -> str:
    body = bytes([len(data), address >> 8, address & 255, kind]) + data
    return f":{body.hex().upper()}{-sum(body) & 255:02X}"

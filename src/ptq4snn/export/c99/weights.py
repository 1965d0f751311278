"""Weights at their own width: rows of planes, of which one operation takes four weights at a time.

A field f is w + 2^(b-1), so that it is never negative; weights that are all odd, w = 2 q + 1, are stored
as q in one bit less: w is 2 f - 2^b + 1 then. The bits of a field are cut into planes of 4, 2 and 1 bits
(5 bits: 4 + 1), the lowest first; 8 bits are one plane. In each plane of a row four neighbours lie in the
four bytes of a 32-bit word, so that

    (word >> s) & mask     s = 0, plane, 2 plane ... < 8

are the fields 4 l .. 4 l + 3, one in each byte ("lanes"), and many rows can be added in all lanes at once.
Rows are padded to whole words of every plane: to 16, 32, 8, 32, 16, 32 or 4 fields with 2 .. 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.program import Project
from ptq4snn.runtime.parameters import ProjectionNumbers

__all__ = ["PLANES", "Packed", "lane_terms", "pack_weights"]

PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1), 8: (8,)}
MASKS = {1: "0x01010101U", 2: "0x03030303U", 4: "0x0F0F0F0FU", 8: "0xFFFFFFFFU"}
MOST_WASTE = 1.25  # of padding, before all weights are one row

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Packed:
    """Rows [taps, Cin / groups] of Cout fields or, where padding would cost too much (`flat`), one row of
    all weights in this order."""

    words: Words
    bits: int
    flat: bool
    fields: int  # of a row, padded
    odd: bool  # w = 2 f - 2^b + 1

    @property
    def row(self) -> int:
        """Words of a row."""
        return self.fields * self.bits // 32

    @property
    def lanes(self) -> int:
        return self.fields // 4

    def summed(self, fields: str, x: str) -> str:
        """The sum of w x, unsigned, of those of f x and of x."""
        half = 2 ** (self.bits - 1)
        return f"2U * {fields} - {2 * half - 1}U * {x}" if self.odd else f"{fields} - {half}U * {x}"

    def weight(self, centred: str) -> str:
        """w of f - 2^(b-1)."""
        return f"(2 * {centred} + 1)" if self.odd else centred


def padded(count: int, bits: int) -> int:
    unit = 32 // min(PLANES[bits])
    return -(-count // unit) * unit


def pack_weights(n: ProjectionNumbers, op: Project) -> Packed:
    """[Cout, Cin / groups, *kernel] in the order [tap, Cin / groups, Cout]."""
    w = n.weight.reshape(*n.weight.shape[:2], -1).transpose(2, 1, 0).astype(np.int64)
    odd = n.bits > min(PLANES) and bool((w % 2 == 1).all())
    bits = n.bits - odd
    w = (w >> 1 if odd else w) + 2 ** (bits - 1)
    cout = w.shape[2]
    flat = padded(cout, bits) > MOST_WASTE * cout
    rows = w.reshape(1, -1) if flat else w.reshape(-1, cout)
    fields = padded(rows.shape[1], bits)
    full = np.zeros((len(rows), fields), dtype=np.uint32)
    full[:, : rows.shape[1]] = rows
    return Packed(_planes(full, bits).reshape(-1), bits, flat, fields, odd)


def _planes(rows: Words, bits: int) -> Words:
    """Rows [R, fields] as [R, words]."""
    parts, below = [], 0
    for plane in PLANES[bits]:
        lanes = 8 // plane
        part = (rows >> np.uint32(below)) & np.uint32(2**plane - 1)
        part = part.reshape(len(rows), -1, lanes, 4)  # word, lane of it, byte
        shifts = np.arange(lanes, dtype=np.uint32)[:, None] * plane + np.arange(4, dtype=np.uint32) * 8
        parts.append(np.bitwise_or.reduce(part << shifts, axis=(2, 3)))
        below += plane
    return np.concatenate(parts, axis=1).astype(np.uint32)


def lane_terms(bits: int, word: str, lanes: str) -> list[str]:
    """Expressions of as many lanes as one word of the narrowest plane holds, `word` being its number in the
    row and `lanes` the number of lanes of a row."""
    planes, narrow = PLANES[bits], min(PLANES[bits])
    if bits == 8:
        return [f"w[{word}]"]
    out = []
    for lane in range(8 // narrow):
        parts, below, begin = [], 0, ""
        for plane in planes:
            held = 8 // plane  # lanes of a word of this plane
            times = (8 // narrow) // held
            at = word if times == 1 else f"{times} * {word} + {lane // held}"
            shift = lane % held * plane
            x = f"w[{begin}{at}]"
            x = f"((({x}) >> {shift}) & {MASKS[plane]})" if shift else f"({x} & {MASKS[plane]})"
            parts.append(f"({x} << {below})" if below else x)
            below += plane
            begin += f"{lanes} / {held} + "
        out.append(" + ".join(parts))
    return out

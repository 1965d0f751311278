"""Where a value of one step lies, and how an element of it is read and written.

packed   0 .. 1, 0 .. 3 or 0 .. 15 in fields of 1, 2 or 4 bits; each position begins with a new word of
         8, 16 or 32 bits, channel c is field c % n of word c / n, the lowest bits first
whole    the smallest integer type that holds its proven range
input    the levels that the caller gives
sum      in the state: a sum over time
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ptq4snn.export.c99.text import c_type, fits32, size_of
from ptq4snn.network.program import Value

__all__ = ["MEMBERS", "Place", "choose"]

MEMBERS = {
    "uint8_t": "u8", "int8_t": "i8", "uint16_t": "u16", "int16_t": "i16", "uint32_t": "u32", "int32_t": "i32",
    "int64_t": "i64",
}  # fmt: skip
WIDTHS = ((1, 1), (3, 2), (15, 4))  # largest number, bits


@dataclass
class Place:
    value: Value
    low: int
    high: int
    kind: str  # "packed" | "whole" | "input" | "sum"
    type: str  # of one word or number
    width: int = 0  # bits of a packed field
    symbol: str = ""  # of an input or a sum
    offset: int = field(default=0)  # bytes into the arena

    @property
    def fields(self) -> int:
        """Packed fields of a word."""
        return 8 * size_of(self.type) // self.width

    @property
    def row(self) -> int:
        """Words or numbers of one position."""
        return -(-self.value.channels // self.fields) if self.kind == "packed" else self.value.channels

    @property
    def bytes(self) -> int:
        return self.value.positions * self.row * size_of(self.type)

    @property
    def wide(self) -> bool:
        return not fits32(self.low, self.high)

    @property
    def array(self) -> str:
        return f"a->{MEMBERS[self.type]}" if self.kind in ("packed", "whole") else self.symbol

    def word(self, p: str, j: str) -> str:
        """Word or number j of position p."""
        begin = 0 if self.kind == "sum" else self.offset // size_of(self.type)
        terms = [f"{begin}U"] if begin else []
        if self.value.positions > 1 and p not in ("0", "0U"):
            terms.append(f"{p} * {self.row}U" if self.row > 1 else p)
        if self.row > 1:
            terms.append(j)
        return f"{self.array}[{' + '.join(terms) or '0'}]"

    def read(self, p: str, c: str) -> str:
        """Element c of position p as an int32_t or, where it is wide, an int64_t."""
        if self.kind != "packed":
            return f"({'int64_t' if self.wide else 'int32_t'}){self.word(p, c)}"
        n, mask = self.fields, 2**self.width - 1
        at = f"{c} / {n}U" if n > 1 else c
        by = f"{c} % {n}U" if self.width == 1 else f"({c} % {n}U) * {self.width}U"
        return f"(int32_t)(((uint32_t){self.word(p, at)} >> ({by})) & {mask}U)"

    def write(self, p: str, c: str, x: str) -> str:
        """A statement; a packed row must have been cleared."""
        if self.kind != "packed":
            return f"{self.word(p, c)} = ({self.type})({x});"
        n = self.fields
        by = f"{c} % {n}U" if self.width == 1 else f"({c} % {n}U) * {self.width}U"
        word = self.word(p, f"{c} / {n}U" if n > 1 else c)
        return f"{word} = ({self.type})({word} | ((uint32_t)({x}) << ({by})));"

    @property
    def pointer(self) -> str:
        """Its first word or number."""
        return f"&{self.array}[{self.offset // size_of(self.type)}]"

    def clear(self) -> str:
        return f"memset({self.pointer}, 0, {self.bytes});"


def choose(value: Value, low: int, high: int) -> Place:
    """The place of a value in the arena, its offset not chosen yet."""
    for most, width in WIDTHS:
        if low >= 0 and high <= most:
            bits = width * value.channels
            kind = "uint8_t" if bits <= 8 else "uint16_t" if bits <= 16 else "uint32_t"
            return Place(value, low, high, "packed", kind, width)
    return Place(value, low, high, "whole", c_type(low, high))

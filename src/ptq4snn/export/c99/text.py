"""Small pieces of C: numbers, types, tables and indented lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.numerics.limits import INT32

__all__ = [
    "Integers", "Tables", "block", "c_type", "fits32", "given", "initializer", "loop", "number", "scaled",
    "size_of", "uses",
]  # fmt: skip

Integers = NDArray[np.int64]
TYPES = (
    ("uint8_t", 0, 2**8 - 1), ("int8_t", -(2**7), 2**7 - 1), ("uint16_t", 0, 2**16 - 1),
    ("int16_t", -(2**15), 2**15 - 1), ("int32_t", -(2**31), 2**31 - 1), ("int64_t", -(2**63), 2**63 - 1),
)  # fmt: skip
SIZES = {"uint8_t": 1, "int8_t": 1, "uint16_t": 2, "int16_t": 2, "uint32_t": 4, "int32_t": 4, "int64_t": 8}
LINE = 100


def c_type(low: int, high: int) -> str:
    """The smallest type that holds low .. high."""
    return next(name for name, least, most in TYPES if least <= low and high <= most)


def size_of(kind: str) -> int:
    return SIZES[kind]


def fits32(*numbers: int) -> bool:
    """Whether an int32_t holds them all, and their negatives."""
    return all(abs(int(n)) < INT32 for n in numbers)


def number(x: int, wide: bool = False) -> str:
    """A literal of type int32_t, or int64_t where it is `wide` or does not fit."""
    x = int(x)
    if x == -INT32 and not wide:
        return "(-2147483647 - 1)"
    if not wide and fits32(x):
        return str(x) if x >= 0 else f"({x})"
    return f"INT64_C({x})" if x >= 0 else f"(INT64_C({x}))"


def scaled(x: str, by: int, wide: bool = False) -> str:
    return x if by == 1 else f"{x} * {number(by, wide)}"


def block(lines: Iterable[str], by: int = 1) -> list[str]:
    """Lines, further in; those of the preprocessor stay."""
    return [line if line.startswith("#") else "  " * by + line for line in lines]


def loop(variable: str, count: int, body: Sequence[str]) -> list[str]:
    """`body` for 0 .. count - 1."""
    return [f"for (uint32_t {variable} = 0; {variable} < {count}; {variable}++) {{", *block(body), "}"]


def uses(body: Sequence[str], variable: str) -> bool:
    return any(re.search(rf"\b{variable}\b", line) for line in body)


def given(variable: str, value: str, body: Sequence[str], kind: str = "uint32_t") -> list[str]:
    """`body` behind a constant, where it uses it."""
    return [f"const {kind} {variable} = {value};", *body] if uses(body, variable) else list(body)


def initializer(values: Iterable[str]) -> list[str]:
    """Numbers with commas, in lines that can be read."""
    lines, line = [], ""
    for text in values:
        if len(line) + len(text) + 2 > LINE:
            lines.append(f"  {line.rstrip()}")
            line = ""
        line += f"{text}, "
    return [*lines, f"  {line.rstrip(', ')}"]


class Tables:
    """Constant arrays beside the weights; equal ones are written once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: dict[tuple[str, bytes], str] = {}
        self._text: dict[str, tuple[int, list[str]]] = {}  # of a symbol: bytes and lines

    def table(self, values: Any, note: str) -> str:
        """The symbol of an array that holds `values`."""
        array = np.ascontiguousarray(np.asarray(values, dtype=np.int64).reshape(-1))
        kind = c_type(int(array.min()), int(array.max()))
        key = kind, array.tobytes()
        if key not in self._known:
            symbol = self._known[key] = f"{self.name}_t{len(self._known)}"
            literals = (number(x, kind == "int64_t") for x in array.tolist())
            head = [f"/* {note} */", f"static const {kind} {symbol}[{len(array)}] = {{"]
            self._text[symbol] = len(array) * size_of(kind), [*head, *initializer(literals), "};"]
        return self._known[key]

    def _named(self, code: Sequence[str]) -> set[str]:
        return set(re.findall(rf"\b{self.name}_t\d+\b", "\n".join(code)))

    def lines(self, code: Sequence[str], besides: Sequence[str] = ()) -> list[str]:
        """The arrays that `code` names, and `besides` does not."""
        named = self._named(code) - self._named(besides)
        return [line for symbol, (_, text) in self._text.items() if symbol in named for line in text]

    def bytes(self, code: Sequence[str]) -> int:
        named = self._named(code)
        return sum(size for symbol, (size, _) in self._text.items() if symbol in named)

    def per(self, values: Any, variable: str, note: str, wide: bool = False) -> str:
        """An expression for values[variable], int32_t or int64_t: a number where all are alike."""
        array = np.asarray(values, dtype=np.int64).reshape(-1)
        if (array == array[0]).all():
            return number(int(array[0]), wide)
        wide = wide or not fits32(int(array.min()), int(array.max()))
        return f"({'int64_t' if wide else 'int32_t'}){self.table(array, note)}[{variable}]"

    def at(self, values: Any, variable: str, note: str) -> str:
        """An expression for the place values[variable], uint32_t: linear where it is."""
        array = np.asarray(values, dtype=np.int64).reshape(-1)
        first = int(array[0])
        if (array == first).all():
            return f"{first}U"
        step = int(array[1]) - first
        if step > 0 and (np.diff(array) == step).all():
            linear = variable if step == 1 else f"{step}U * {variable}"
            return linear if first == 0 else f"{first}U + {linear}"
        return f"(uint32_t){self.table(array, note)}[{variable}]"

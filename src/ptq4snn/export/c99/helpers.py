"""C functions that several operations share; only those that are used are written."""

from __future__ import annotations

from collections.abc import Callable

from ptq4snn.export.c99 import lanes
from ptq4snn.export.c99.steps import steps_lines
from ptq4snn.export.c99.text import uses

__all__ = ["Helpers"]


class Helpers:
    """`use(name)` gives the name of a helper in C and remembers that it is needed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._used: dict[str, list[str]] = {}

    def use(self, what: str) -> str:
        if what not in self._used:
            kind, _, arguments = what.partition(":")
            self._used[what] = (
                _HELPERS[kind](self.name, *arguments.split(",")) if arguments else _HELPERS[kind](self.name)
            )
        return f"{self.name}_{what.replace(':', '').replace(',', '_')}"

    def lines(self, code: list[str]) -> list[str]:
        """The helpers that `code` calls, and those that they call."""
        out: list[str] = []
        for what, text in reversed(self._used.items()):
            if uses([*code, *out], self.use(what)):
                out = [*text, "", *out]
        return out


def _even(name: str, size: str) -> list[str]:
    return [
        "/* a / 2^n, halves to even */",
        f"static int{size}_t {name}_even{size}(int{size}_t a, int32_t n)",
        "{",
        "  if (n == 0) {",
        "    return a;",
        "  }",
        f"  return (a + (((int{size}_t)1 << (n - 1)) - 1) + ((a >> n) & 1)) >> n;",
        "}",
    ]


def _first(name: str) -> list[str]:
    order, x = [0] * 32, 0x077CB531
    for i in range(32):
        order[((x << i) & 0xFFFFFFFF) >> 27] = i
    places = ", ".join(map(str, order))
    return [
        "/* the number of the lowest bit of x that is set */",
        "#if defined(__GNUC__) && !defined(__ARM_ARCH_6M__)",
        f"#define {name}_first(x) ((uint32_t)__builtin_ctzl((unsigned long)(x)))",
        "#else",
        f"static uint32_t {name}_first(uint32_t x)",
        "{",
        f"  static const uint8_t places[32] = {{{places}}};",
        "  return places[((x & (0U - x)) * 0x077CB531U) >> 27];",
        "}",
        "#endif",
    ]


def _get(name: str) -> list[str]:
    return [
        "/* the field of `width` bits from bit `at` on, with its sign */",
        f"static int32_t {name}_get(const uint8_t *row, uint32_t at, uint32_t width)",
        "{",
        "  uint32_t x = 0;",
        "  for (uint32_t i = 0; i < width;) {",
        "    const uint32_t from = (at + i) % 8U;",
        "    x |= ((uint32_t)row[(at + i) / 8U] >> from) << i;",
        "    i += 8U - from;",
        "  }",
        "  x <<= 32U - width;",
        "  return (int32_t)x >> (32U - width);",
        "}",
    ]


def _put(name: str) -> list[str]:
    return [
        "/* and its inverse */",
        f"static void {name}_put(uint8_t *row, uint32_t at, uint32_t width, int32_t v)",
        "{",
        "  for (uint32_t i = 0; i < width;) {",
        "    const uint32_t from = (at + i) % 8U;",
        "    const uint32_t room = 8U - from;",
        "    const uint32_t take = width - i < room ? width - i : room;",
        "    const uint32_t mask = ((1U << take) - 1U) << from;",
        "    const uint32_t bits = (((uint32_t)v >> i) << from) & mask;",
        "    uint8_t *byte = &row[(at + i) / 8U];",
        "    *byte = (uint8_t)((*byte & ~mask) | bits);",
        "    i += take;",
        "  }",
        "}",
    ]


def _phase(name: str) -> list[str]:
    return [
        "/* the dither of a step, of a cycle of 16: its bits in reverse order, the highest ones of 16 */",
        f"static uint32_t {name}_phase(uint32_t t)",
        "{",
        "  return ((t & 1U) << 15) | ((t & 2U) << 13) | ((t & 4U) << 11) | ((t & 8U) << 9);",
        "}",
    ]


_HELPERS: dict[str, Callable[..., list[str]]] = {
    "even": _even,
    "first": _first,
    "get": _get,
    "put": _put,
    "phase": _phase,
    "add": lanes.add_lines,
    "wide": lanes.wide_lines,
    "widen": lanes.widen_lines,
    "drain": lanes.drain_lines,
    "mac": lanes.mac_lines,
    "weight": lanes.weight_lines,
    "steps": steps_lines,
}

"""Writes csrc/layout.h: what `layout.py` and the levels of `build.py` say, for the kernels.

    python -m ptq4snn.runtime.native.header             writes it in its place

The header is kept beside the sources, so that building them takes nothing but a compiler.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum

from ptq4snn.files import write_whole
from ptq4snn.numerics import dither
from ptq4snn.runtime.native import build, layout

__all__ = ["HEADER_FILE", "header", "main"]

HEADER_FILE = build.SOURCES / "layout.h"
COLUMNS = 120
TOP = (
    "What Python and the kernels share. Written by runtime/native/header.py from layout.py, build.py and "
    "numerics/dither.py: change those, then run `python -m ptq4snn.runtime.native.header`. "
    "A test compares this file with them.",
    "A plan is one block of little-endian numbers: a header, tables of int64 (values, arrays, operations), "
    "then the bytes of the arrays. The rows of a table have the fields of its enumeration.",
)
LEVELS = (
    "PTQ_LEVELS(f) is f(name, whether this machine runs it) for every instruction set level of this build, "
    "the best last. The build defines PTQ_HAVE_... for each that the compiler knows; the first needs none."
)


def _comment(*paragraphs: str) -> str:
    wrapped = (textwrap.wrap(p, COLUMNS, initial_indent="// ", subsequent_indent="// ") for p in paragraphs)
    return "\n//\n".join("\n".join(lines) for lines in wrapped)


def _camel(name: str) -> str:
    """`pads_zero` or `PADS_ZERO` as `PadsZero`."""
    return "".join(word.capitalize() for word in name.lower().split("_"))


def _noted(text: str, note: str) -> str:
    return f"  {text}  // {note}" if note else f"  {text}"


def _wrapped(opening: str, words: Iterable[str], closing: str) -> str:
    """`opening` WORD, WORD, ... `closing`, on as many lines as it takes."""
    inside = ", ".join(words)
    line = f"{opening} {inside} {closing}"
    if len(line) <= COLUMNS:
        return line
    lines = textwrap.wrap(inside, COLUMNS, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([opening, *lines, closing])


def _positions(name: str, letter: str, fields: Iterable[str], count: str = "Fields") -> str:
    """An enumeration whose members count from 0; the last is how many there are."""
    members = [f"{letter}{_camel(field)}" for field in (*fields, count)]
    return _wrapped(f"enum {name} : int32_t {{", members, "};")


def _noted_enum(members: type[IntEnum], count: str = "") -> str:
    """One member a line, with its note."""
    lines = [_noted(f"k{_camel(m.name)} = {m.value},", getattr(m, "note", "")) for m in members]
    lines += [f"  {count} = {len(members)},"] if count else []
    return "\n".join([f"// {members.__doc__}", f"enum {members.__name__} : int32_t {{", *lines, "};"])


def _widths(name: str, widths: Sequence[int]) -> str:
    numbers = ", ".join(map(str, widths))
    return f"constexpr int {name}Count = {len(widths)};\nconstexpr int {name}s[{name}Count] = {{{numbers}}};"


def _class(name: str, members: Sequence[str]) -> str:
    """Of numbers from 0 on."""
    inside = ", ".join(_camel(member) for member in members)
    return f"enum class {name} : int {{ {inside} }};\nconstexpr int k{name}s = {len(members)};"


def _struct(name: str, members: Iterable[tuple[str, str, str]]) -> str:
    lines = [_noted(f"{kind} {member};", note) for member, kind, note in members]
    return "\n".join([f"struct {name} {{", *lines, "};"])


def _plan() -> Iterable[str]:
    yield (
        f"constexpr int64_t kMagic = {layout.MAGIC:#x};  // {layout.MAGIC.to_bytes(8, 'little').decode()}\n"
        f"constexpr int64_t kAlignment = {layout.ALIGNMENT};  // bytes, of arrays and of values"
    )
    yield _noted_enum(layout.Format)
    yield _noted_enum(layout.Kind, "kKinds")
    yield _wrapped("enum How : int32_t {", [f"k{_camel(how.name)}" for how in layout.How] + ["kHows"], "};")
    yield "// Bits of the fields of a packed state, widest first.\n" + _widths("kWidth", layout.WIDTHS)
    yield _positions("Header", "h", layout.HEADER)
    yield _positions("ValueField", "v", layout.VALUE_FIELDS)
    yield _positions("ArrayField", "a", layout.ARRAY_FIELDS)
    yield _positions("ArrayType", "t", (f"{t.kind}{8 * t.itemsize}" for t in layout.ARRAY_TYPES), "Types")
    yield _positions("OpField", "o", layout.OP_FIELDS)
    yield _dither()


def _call() -> Iterable[str]:
    yield "// One call from outside.\n" + _struct("Request", layout.REQUEST)
    counters = [(name, "int64_t", "") for name in layout.COUNTERS]
    yield "// What an operation did in a call, for statistics.\n" + _struct("Counters", counters)


def _dither() -> str:
    """The numbers of numerics/dither.py; csrc/dither.h computes with them."""
    return (
        f"// Dither: phases are of {dither.PHASE_BITS} bits, which is also the largest shift.\n"
        f"constexpr int kPhaseBits = {dither.PHASE_BITS}, kCycleBits = {dither.CYCLE_BITS};\n"
        f"constexpr uint32_t kPhaseStride = {dither.STRIDE}, kPhaseHalf = {dither.HALF};"
    )


def _hot() -> Iterable[str]:
    widths = _widths("kHotWidth", layout.HOT_WIDTHS)
    yield f"// The widths of fields that the hot kernels read and write themselves.\n{widths}"
    yield _class("Reset", layout.RESETS)
    yield "// Of a projection; Auto: by the measured density.\n" + _class("Path", layout.PATHS)


def _levels() -> Iterable[str]:
    """A macro for each level, empty where it was not built, and one for all."""
    yield _comment(LEVELS)
    names = [f"PTQ_LEVEL_{level.upper()}" for level in build.LEVELS]
    for name, (level, features) in zip(names, build.LEVELS.items(), strict=True):
        runs = " && ".join(f'__builtin_cpu_supports("{f}")' for f in features) or "true"
        call = textwrap.wrap(f"f({level}, {runs})", COLUMNS - 6, subsequent_indent="  ")
        define = " \\\n  ".join([f"#define {name}(f)", *call])
        have = f"#if defined(PTQ_HAVE_{level.upper()})"
        yield "\n".join([have, define, "#else", f"#define {name}(f)", "#endif"]) if features else define
    yield "#define PTQ_LEVELS(f) " + " ".join(f"{name}(f)" for name in names)


def header() -> str:
    """The text of csrc/layout.h."""
    hot = ["namespace hot {", *_hot(), "}  // namespace hot"]
    top = f"{_comment(*TOP)}\n#pragma once\n#include <cstdint>\n\n// clang-format off\n\nnamespace ptq {{"
    parts = [top, *_plan(), *_call(), *hot, "}  // namespace ptq", *_levels()]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    write_whole(HEADER_FILE, header().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

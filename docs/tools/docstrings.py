"""Docstrings as Markdown: lines `name: what it is` about arguments and fields become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


class Entries(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        names = set(obj.members) if obj.is_class else {p.name for p in getattr(obj, "parameters", ())}
        obj.docstring.value = listed(obj.docstring.value, names)


def listed(text: str, names: set[str]) -> str:
    """`text` with every entry about one of `names` as an item; its further lines are indented already."""
    lines, inside = [], False
    for line in text.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry is not None and set(entry[1].split(", ")) <= names:
            lines += [] if inside else [""]
            inside = True
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            if inside and line and not line.startswith(" "):
                lines.append("")
                inside = False
            lines.append(line)
    return "\n".join(lines)

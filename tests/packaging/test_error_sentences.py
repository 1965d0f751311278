"""What is refused is refused in two sentences at the most: what, where, what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import ptq4snn
from ptq4snn import errors

SOURCE = Path(ptq4snn.__file__).parent
KINDS = {name for name in vars(errors) if not name.startswith("_")} | {"Refused", "Unfollowed", "refusal"}


def told() -> list[tuple[str, str]]:
    """Place and text of every message in the package; what is put in stands as x."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in KINDS:
                place = f"{file.relative_to(SOURCE)}:{node.lineno}"
                found += [(place, text) for a in node.args if (text := _text(a)) is not None]
    return found


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(p.value if isinstance(p, ast.Constant) else "x" for p in node.values)  # type: ignore[misc]
    return None


def test_two_sentences_at_the_most() -> None:
    messages = told()
    assert len(messages) > 400  # they are found
    long = [(place, text) for place, text in messages if len(re.findall(r"[.!?] +[A-Z]", text)) > 1]
    assert not long


def test_and_no_line_ends() -> None:
    assert not [(place, text) for place, text in told() if "\n" in text]

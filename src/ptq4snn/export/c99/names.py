"""What of a stranger's text may stand in C: nothing but comments, and of these only plain characters.

Identifiers are made of the caller's own name and of numbers.
"""

from __future__ import annotations

import re

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import short

__all__ = ["comment", "identifier", "name_of", "section"]

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
SECTION = re.compile(r"[A-Za-z0-9_.$,-]{1,80}")
UNKNOWN = re.compile(r"[^A-Za-z0-9_. ()<>=+:-]")
SHOWN = 60
KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "main",
        "asm",
        "typeof",
        "bool",
        "true",
        "false",
        "class",
        "new",
        "delete",
        "this",
        "template",
        "namespace",
        "using",
    ]
)


def comment(text: str) -> str:
    """A name as it stands in a comment: nothing that could end one, begin one or join lines."""
    plain = UNKNOWN.sub("_", text)
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 3]}..."


def identifier(name: object) -> str:
    """The caller's name for the network, with which all that is visible begins."""
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name) or name in KEYWORDS:
        raise PTQ4SNNError(
            f"{short(repr(name))} is no name in C: give letters, digits and _, at most 40, a letter first"
        )
    return name


def name_of(stem: str) -> str:
    """A name made of a file's."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")[:40]
    if not IDENTIFIER.fullmatch(plain):
        plain = f"net_{plain}"[:40]
    return "network" if plain in KEYWORDS else plain


def section(text: str | None) -> str | None:
    if text is not None and not SECTION.fullmatch(text):
        raise PTQ4SNNError(
            f"{short(repr(text))} is no section of a linker: give a name such as .flash_weights"
        )
    return text

"""What a misspelt name may have meant, for the end of a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ptq4snn.files import short

__all__ = ["hint", "nearest"]


def nearest(word: object, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name that is most like `word`; None if none is as much `alike`, from 0 to 1."""
    found = difflib.get_close_matches(short(word), list(known), 1, alike)
    return found[0] if found else None


def hint(word: object, known: Iterable[str], otherwise: str = "", alike: float = 0.6) -> str:
    """The nearest name as a question, else `otherwise`, by default all names that are known."""
    known = list(dict.fromkeys(known))
    near = nearest(word, known, alike)
    return f"did you mean {near!r}?" if near is not None else otherwise or f"known are {', '.join(known)}"

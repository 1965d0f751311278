"""Files that are written whole or not at all, and a mark of the code that made them."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

__all__ = ["code_mark", "write_whole"]


def write_whole(path: Path, content: bytes | str) -> None:
    """Write beside the place, under a name of this process alone, then move: a full disk or a kill leaves
    what was there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except OSError as why:
        raise OSError(why.errno, why.strerror or str(why), str(path)) from why  # not the draft's name
    finally:
        draft.unlink(missing_ok=True)


@cache
def code_mark() -> str:
    """Of the library's own sources: what other code has stored is not taken for the result of this."""
    root = Path(__file__).parent
    mark = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        mark.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return mark.hexdigest()[:16]

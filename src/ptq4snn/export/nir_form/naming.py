"""Names of a bundle as metadata of a NIR file."""

from __future__ import annotations

__all__ = ["printable"]

LONGEST = 500


def printable(name: str) -> str:
    """A stranger's name as HDF5 takes it: no zero bytes, no half characters, no control of a terminal."""
    return "".join(c if c.isprintable() else "_" for c in name[:LONGEST])

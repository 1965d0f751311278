"""Numbers of a report that may be missing, and are not here."""

from __future__ import annotations

__all__ = ["known"]


def known(x: float | None) -> float:
    """x, which must have been measured."""
    assert x is not None, "it was not measured"
    return x

"""Which array of a file holds the samples. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ptq4snn.errors import DataError

__all__ = ["LABELS", "SAMPLES", "name_of_samples"]

SAMPLES, LABELS = "x", "y"


def name_of_samples(path: Path, names: Sequence[str]) -> str:
    """`x`; in a file without one, the only array that is not `y`."""
    if SAMPLES in names:
        return SAMPLES
    others = [name for name in names if name != LABELS]
    if len(others) == 1:
        return others[0]
    found = ", ".join(names)[:200] or "nothing"
    raise DataError(f"{path} holds {found} but no x: name the samples x and the labels y")

"""Numbers of the arithmetic have one home: no other file gives one of these names a value of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np

import ptq4snn
from ptq4snn.numerics import dither, limits

SHARED = {*limits.__all__, "PHASES", "PHASE_BITS", "CYCLE_BITS"}


def assigned(path: Path) -> set[str]:
    """Names that a file gives a value, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def test_one_name_has_one_value() -> None:
    source = Path(ptq4snn.__file__).parent
    homes = {Path(limits.__file__), Path(dither.__file__)}
    again = {p.name: assigned(p) & SHARED for p in source.rglob("*.py") if p not in homes}
    assert not {name: found for name, found in again.items() if found}


def test_they_are_what_they_say() -> None:
    assert np.iinfo(np.int32).max == limits.INT32 - 1 and np.iinfo(np.int32).min == -limits.INT32
    for kind, limit in ((np.float32, limits.EXACT_FLOAT32), (np.float64, limits.EXACT_FLOAT64)):
        assert int(kind(limit - 1)) == limit - 1 and int(kind(limit)) == limit
        assert int(kind(limit + 1)) == limit  # the first whole number that is lost
    assert 1 << (limits.INT64_SHIFT - 1) < 2 << (limits.INT64_SHIFT - 1) <= np.iinfo(np.int64).max

"""The one home of "did you mean"."""

from __future__ import annotations

from pathlib import Path

import ptq4snn
from ptq4snn.hints import hint, nearest

KNOWN = ("bridge", "reuse", "layerwise", "reuse")


def test_the_nearest_name_is_suggested_and_else_all_are_told() -> None:
    assert hint("brige", KNOWN) == "did you mean 'bridge'?"
    assert hint("xyz", KNOWN) == "known are bridge, reuse, layerwise"
    assert hint("xyz", KNOWN, "ask for a list") == "ask for a list"
    assert nearest(7, KNOWN) is None


def test_how_much_alike_a_name_must_be() -> None:
    assert nearest("bri", KNOWN, 0.6) == "bridge"
    assert nearest("bri", KNOWN, 0.9) is None


def test_a_name_without_end_takes_no_time() -> None:
    assert nearest("b" * 10**7, KNOWN) is None


def test_no_other_file_looks_for_names_by_itself() -> None:
    source = Path(ptq4snn.__file__).parent
    assert [p.name for p in source.rglob("*.py") if "difflib" in p.read_text(encoding="utf-8")] == [
        "hints.py"
    ]

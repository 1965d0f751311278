"""The networks of snnTorch's tutorials, against the table in docs/zoo.md."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

pytest.importorskip("snntorch")
from frameworks.zoo_cases import Case, documented, outcome, snntorch_cases

FAMILY = "snnTorch 1.0.0"
CASES = snntorch_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_table_is_right(case: Case, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(case, tmp_path) == documented(FAMILY)[case.name]


def test_every_network_is_in_the_table() -> None:
    assert list(documented(FAMILY)) == [c.name for c in CASES]

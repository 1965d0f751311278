"""SpikingJelly's own zoo and what its ann2snn makes, against the table in docs/zoo.md."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

pytest.importorskip("spikingjelly.activation_based")
from frameworks.zoo_cases import Case, documented, outcome, spikingjelly_cases

NEWER = os.environ.get("PTQ4SNN_EXPECTED_SPIKINGJELLY") == os.environ.get("PTQ4SNN_SPIKINGJELLY_200", "none")
FAMILY = f"SpikingJelly {'2.0.0' if NEWER else '0.0.0.0.14'}"
CASES = spikingjelly_cases()
# each costs seconds; by default every fourth is run, others under either generation
SOME = CASES if os.environ.get("PTQ4SNN_FULL") else CASES[2 if NEWER else 0 :: 4]


@pytest.mark.parametrize("case", SOME, ids=lambda c: c.name)
def test_the_table_is_right(case: Case, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(case, tmp_path) == documented(FAMILY)[case.name]


def test_every_network_is_in_the_table() -> None:
    assert list(documented(FAMILY)) == [c.name for c in CASES]

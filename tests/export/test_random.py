"""Random programs in C against the NumPy executor: levels, spikes, states, sums and outputs, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from export.cases import random_case
from export.harness import SANITIZED, build, compare, results

COMPILERS = {"gcc": range(12), "clang": range(12, 22)}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_random_programs(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    cases = [random_case(seed) for seed in COMPILERS[compiler]]
    compare(cases, results(build(cases, tmp_path, compiler, SANITIZED), cases))

"""Random programs in C against the NumPy executor: levels, spikes, states, sums and outputs, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.harness import SANITIZED, Case, build, case, expected, results
from runtime.programs import random_input, random_model

COMPILERS = ("gcc", "clang")


def random_case(seed: int, **options: Any) -> Case:
    model = random_model(seed, operations=5, work=1500)
    steps = model.program.steps + (seed % 3 if model.program.input.time_axis is None else 0)
    options = {"path": "dense" if seed % 5 == 4 else "event", **options}
    return case(model, f"m{seed}", random_input(model, seed, 1), steps, **options)


def compare(cases: list[Case], folder: Path, compiler: str, flags: tuple[str, ...]) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    found = results(build(cases, folder, compiler, flags), cases)
    begin = 0
    for one in cases:
        wanted = expected(one)
        mine = found[begin : begin + len(wanted)]
        assert np.array_equal(np.frombuffer(mine, np.uint8), np.frombuffer(wanted, np.uint8)), one.source.name
        begin += len(wanted)
    assert begin == len(found)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_random_programs(compiler: str, tmp_path: Path) -> None:
    compare([random_case(seed) for seed in range(12)], tmp_path, compiler, SANITIZED)

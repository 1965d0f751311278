"""Runs the SpikingJelly tests against each generation of it: the two cannot live in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted(
    str(p.relative_to(ROOT)) for p in ROOT.glob("tests/*/test_spikingjelly*.py") if p != Path(__file__)
)


@pytest.mark.parametrize("tests", TESTS)
@pytest.mark.parametrize("variable", ["PTQ4SNN_SPIKINGJELLY_014", "PTQ4SNN_SPIKINGJELLY_200"])
def test_generation(variable: str, tests: str) -> None:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set: `make test` installs that generation and sets it")
    if not Path(folder, "spikingjelly").is_dir():
        pytest.skip(f"{variable} holds no spikingjelly: that generation does not install on this Python")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    # a plain environment's own SpikingJelly, if any, comes after the folder
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PTQ4SNN_EXPECTED_SPIKINGJELLY": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 5:
        pytest.skip(f"none of it is for this generation: {run.stdout.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None and int(passed[1]) > 0, run.stdout

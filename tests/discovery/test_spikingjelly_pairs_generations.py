"""Runs test_spikingjelly_pairs.py with each generation of SpikingJelly: two cannot live in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("test_spikingjelly_pairs.py")


@pytest.mark.parametrize("variable", ["PTQ4SNN_SPIKINGJELLY_014", "PTQ4SNN_SPIKINGJELLY_200"])
def test_generation(variable: str) -> None:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set: `make test` installs that generation and sets it")
    if not Path(folder, "spikingjelly").is_dir():
        pytest.skip(f"{variable} holds no spikingjelly: that generation does not install on this Python")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)],
        cwd=TESTS.parents[2],
        env={**os.environ, "PYTHONPATH": path, "PTQ4SNN_EXPECTED_SPIKINGJELLY": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None and int(passed[1]) > 0, run.stdout

"""Runs the tests of frameworks that have a folder of their own, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["norse", "sinabs", "rockpool"])
def test_framework(name: str) -> None:
    variable = f"PTQ4SNN_{name.upper()}"
    folder = os.environ.get(variable)
    if not folder or not Path(folder, name).is_dir():
        pytest.skip(f"{variable} names no folder with {name} in it: `make test` installs it there")
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/frameworks/test_{name}.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None and int(passed[1]) > 0, run.stdout

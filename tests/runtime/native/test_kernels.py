"""All kernels against brute force in C++. Few images share sums here, so that there are several groups."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_random_layers_equal_brute_force(tmp_path: Path) -> None:
    program = tmp_path / "kernels_test"
    environment = {**os.environ, "CXX": "g++", "PYTHON": sys.executable}
    build = [
        str(HERE / "build.sh"),
        str(HERE / "kernels_test.cpp"),
        str(program),
        "-O1",
        "-DPTQ_SUM_BYTES=8192",
    ]
    subprocess.run(build, check=True, env=environment, capture_output=True)
    done = subprocess.run([str(program), "1", "100"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("100 cases passed: scalar")

"""The C++ sources are as .clang-format says. Versions differ: only the one that formatted them is asked."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/ptq4snn/runtime/native/csrc", "tests/runtime/native", "benchmarks/kernels")
VERSION = "14"


def test_the_sources_are_formatted() -> None:
    tool = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    if tool is None:
        pytest.skip("clang-format is not installed: the style of the kernels is not checked")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", said)
    if found is None or found[1] != VERSION:
        pytest.skip(f"clang-format {VERSION} formatted the kernels, this is another: {said.strip()}")
    files = [
        p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".h", ".cpp")
    ]
    assert len(files) > 50
    command = [tool, "--dry-run", "--Werror", "--style=file", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]

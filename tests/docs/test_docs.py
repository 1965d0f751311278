"""The documentation runs: every Python block of the guide, in order, in one namespace."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ptq4snn

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptq4snn import frameworks

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(frameworks, "_adapters", list(frameworks._adapters))  # the guide registers one
    found = blocks("docs/guide.md")
    assert len(found) >= 6
    namespace: dict[str, object] = {"__name__": "guide"}
    for i, block in enumerate(found):
        exec(compile(block, f"guide.md block {i + 1}", "exec"), namespace)
    assert {p.name for p in tmp_path.iterdir()} == {"model.ptq", "model.ptq.report.json", "runs"}


def test_the_way_to_c_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's network, its program in C, and the command that compiles it."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "deploy"}
    for block in blocks("docs/deploy.md"):
        exec(compile(block, "deploy.md", "exec"), namespace)
    program = re.search(r"```c\n(.*?)```", text, re.S)
    command = re.search(r"^    (gcc .*)$", text, re.M)
    assert program is not None and command is not None
    (tmp_path / "main.c").write_text(program[1])
    subprocess.run(command[1].split(), check=True)
    printed = subprocess.run(["./main"], capture_output=True, text=True, check=True).stdout.split()
    x = ((np.arange(36) % 7) * 0.5).astype(np.float32).reshape(1, 1, 6, 6)
    assert [np.float32(y) for y in printed] == ptq4snn.runtime.load("model.ptq")(x)[0].tolist()


def test_the_pages_name_only_what_exists() -> None:
    """Every recipe field, command and make target that README, handbook and docs show is there."""
    from ptq4snn.cli.options import build_parser
    from ptq4snn.recipe import Recipe

    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").glob("*.md"),
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    commands = set(re.findall(r"^    ptq4snn (\w+)", text, re.M))
    assert len(commands) > 8
    assert commands <= set(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]
    toml = re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "tour.md").read_text(encoding="utf-8"), re.S)
    assert toml is not None
    keys = re.findall(r"^(\w+) =", toml.group(1).split("[")[0], re.M)
    assert keys and set(keys) <= set(Recipe.__dataclass_fields__)
    targets = set(re.findall(r"(?:^    |`)make ([\w-]+)", text, re.M))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test", "docs", "test-fast"} <= targets
    assert all(re.search(rf"^{t}:", makefile, re.M) for t in targets), targets


def test_the_readme_is_one_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert len(re.findall(r"!\[", text)) == 1  # one figure
    assert re.findall(r"^    make (\w+)", text, re.M) == ["demo", "test"]  # two commands

"""The documentation runs: every Python block of the guide, in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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

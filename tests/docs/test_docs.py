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
    bundle = {"model.ptq", "model.ptq.report.json", "model.ptq.report.html"}
    assert {p.name for p in tmp_path.iterdir()} == {*bundle, "runs"}


def test_the_readme_names_only_what_exists() -> None:
    """Every recipe field, command and make target that the README shows is there."""
    from ptq4snn.cli.options import build_parser
    from ptq4snn.recipe import Recipe

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^    ptq4snn (\w+)", text, re.M))
    assert commands <= set(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]
    toml = re.search(r"```toml\n(.*?)```", text, re.S)
    assert toml is not None
    for key in re.findall(r"^(\w+) =", toml.group(1).split("[")[0], re.M):
        assert key in Recipe.__dataclass_fields__
    targets = re.findall(r"^    make (\S+)", text, re.M)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and all(re.search(rf"^{t}:", makefile, re.M) for t in targets)

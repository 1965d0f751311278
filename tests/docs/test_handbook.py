"""The documents know the code: files, packages, links and versions that they name are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import ptq4snn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
by_name = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Headings as a code host and MkDocs name them."""
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", h.lower()).strip()) for h in heads}


@by_name
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", read(page), flags=re.S)
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor:
            assert anchor in anchors(read(target)), f"{page.name}: {path}#{anchor}"


@by_name
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths from the root, in backticks."""
    for path in re.findall(r"`((?:src|tests|benchmarks|scripts|docs)/[\w./-]+)`", read(page)):
        assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_architecture_names_every_package() -> None:
    table = re.search(r"## The packages\n(.*?)\n## ", read("docs/architecture.md"), re.S)
    assert table is not None
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", table[1], re.M)
    source = ROOT / "src" / "ptq4snn"
    assert {name for name, _ in rows} == {
        p.name for p in source.iterdir() if p.is_dir() and p.name != "__pycache__"
    }
    for name, files in rows:
        for file in re.findall(r"`([\w./]+)`", files):
            assert (source / name / file).exists(), f"{name}/{file}"


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    glossary = read("docs/architecture.md").split("## Glossary")[1]
    words = re.findall(r"^\| ([^|]+?) \|", glossary, re.M)[2:]  # without the head
    assert len(words) > 40
    assert words == sorted(set(words))


def test_one_source_of_the_version() -> None:
    project: dict[str, Any] = tomllib.loads(read("pyproject.toml"))
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ptq4snn.__version__"}
    cited = re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)
    assert cited is not None and cited[1] == ptq4snn.__version__
    assert f"\n## {ptq4snn.__version__}\n" in read("CHANGELOG.md")


def test_every_version_of_the_documentation_tools_is_pinned() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", read("constraints.txt"), re.M)}
    for wanted in project["project"]["optional-dependencies"]["docs"]:
        name = re.split(r"[\[><=]", wanted)[0]
        assert name.lower() in pinned, wanted


def test_the_site_holds_every_page() -> None:
    nav = read("mkdocs.yml")
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}\n" in nav, page.name


def test_the_format_page_is_of_the_version_that_is_written() -> None:
    from ptq4snn.bundle.format import FORMAT_VERSION

    assert read("docs/format.md").startswith(f"# The bundle format, version {FORMAT_VERSION}\n")

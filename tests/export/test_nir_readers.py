"""The table of docs/deploy.md on readers of NIR says what other frameworks make of exported files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nir")

from export.nir_readers import OTHER, READERS, SAME, asked, networks, write_files  # needs nir

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


def table() -> dict[str, dict[str, str]]:
    """Reader to network to outcome, as the page has it."""
    text = re.search("<!-- nir readers -->\n(.*?)<!-- end", PAGE.read_text(encoding="utf-8"), re.S)
    assert text is not None
    head, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in text[1].splitlines())
    return {reader: {r[0]: r[i] for r in rows} for i, reader in enumerate(head) if i}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nir")
    write_files(path)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
def test_a_reader(reader: str, folder: Path) -> None:
    found = asked(reader, folder)
    if found is None:
        pytest.skip(f"{reader} or nirtorch has no folder here: `make test` installs them")
    assert found == table()[reader]


def test_the_table_is_of_these_networks() -> None:
    found = table()
    assert list(found) == list(READERS) and all(list(rows) == list(networks()) for rows in found.values())
    same = [r for r, rows in found.items() if rows["LIF, fully connected"] == SAME]
    assert len(same) == 3  # all but sinabs, whose leak has another rule
    assert all(rows["LIF, fully connected, reset by subtraction"] == OTHER for rows in found.values())

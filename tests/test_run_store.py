"""Runs are found again for exactly their setting; damaged files count as none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import write_whole
from ptq4snn.run_store import Store


def test_found_again_by_another(tmp_path: Path) -> None:
    setting = {"model": "a", "recipe": {"b": 1.5, "a": None}}
    Store(tmp_path / "x" / "y").put(setting, {"score": 1.0})
    store = Store(tmp_path / "x" / "y")
    assert store.get({"recipe": {"a": None, "b": 1.5}, "model": "a"}) == {"score": 1.0}
    assert store.get({**setting, "model": "b"}) is None
    assert [p.suffix for p in store.folder.iterdir()] == [".json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"setting": {}, "result": {}}', "\x80"])
def test_damaged_files_count_as_none(tmp_path: Path, text: str) -> None:
    store, setting = Store(tmp_path), {"model": "a"}
    store.put(setting, {"score": 1.0})
    store.path(setting).write_bytes(text.encode("latin-1"))
    assert store.get(setting) is None


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(PTQ4SNNError, match="is a file"):
        Store(tmp_path / "f")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space", str(self))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match=r"no space: '.*/a\.json'"):  # its own name, not the draft's
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

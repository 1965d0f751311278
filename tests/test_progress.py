"""Progress is silent when piped, and changes nothing about the iteration."""

from __future__ import annotations

import sys

import pytest

from ptq4snn.progress import RichProgress, Silent, for_terminal


def test_silent_when_piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    progress = for_terminal()
    assert isinstance(progress, Silent)
    assert list(progress.track(range(3), 3, "work")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(for_terminal(), RichProgress)


def test_nested_and_interrupted_bars() -> None:
    progress = RichProgress()
    pairs = [
        (a, b) for a in progress.track("ab", 2, "outer") for b in progress.track(range(2), None, "inner")
    ]
    assert pairs == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    with pytest.raises(KeyboardInterrupt):
        for _ in progress.track(range(9), 9, "interrupted"):
            raise KeyboardInterrupt
    assert list(progress.track([5], 1, "again")) == [5]

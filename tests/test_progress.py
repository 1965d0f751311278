"""Progress is silent when piped, and changes nothing about the iteration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn import progress
from ptq4snn.experiments.compare import compare
from ptq4snn.progress import Lines, RichProgress, Silent, chosen, for_terminal, note, stepping
from ptq4snn.recipe import Recipe
from ptq4snn.stages import expected_stages


def test_silent_when_piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    found = for_terminal()
    assert isinstance(found, Silent)
    assert list(found.track(range(3), 3, "work")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(for_terminal(), RichProgress)


def test_nested_and_interrupted_bars() -> None:
    bars = RichProgress()
    pairs = [(a, b) for a in bars.track("ab", 2, "outer") for b in bars.track(range(2), None, "inner")]
    assert pairs == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    with pytest.raises(KeyboardInterrupt):
        for _ in bars.track(range(9), 9, "interrupted"):
            raise KeyboardInterrupt
    assert list(bars.track([5], 1, "again")) == [5]


def test_notes_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """As lines, above bars, or not at all; an object of the user's need not know them."""
    for found in (Lines(), RichProgress()):
        for _ in found.track([1], 1, "work"):
            note(found, "step [1]: kept")
        assert "step [1]: kept" in capsys.readouterr().err
    note(Silent(), "nothing")
    note(Told(), "nothing")
    assert capsys.readouterr() == ("", "")


class Told:
    """Notes what was tracked."""

    def __init__(self) -> None:
        self.descriptions: list[str] = []

    def track(self, iterable: Iterable[Any], total: int | None, description: str) -> Iterator[Any]:
        self.descriptions.append(description)
        yield from iterable


@pytest.mark.parametrize("terminal", [True, False])
def test_what_the_argument_of_the_api_means(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    own = Told()
    assert isinstance(chosen(None), RichProgress if terminal else Silent)
    assert isinstance(chosen(False), Silent) and chosen(own) is own


def test_the_api_shows_bars_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    small_model: Callable[..., nn.Module],
    images: Callable[..., Tensor],
) -> None:
    bars = Told()
    monkeypatch.setattr(progress, "RichProgress", lambda: bars)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    few: dict[str, Any] = {"holdout": 8, "rounding": "nearest", "calibration": 16}
    x, y = images(16), torch.zeros(16).long()
    for quiet in (False, None):
        bars.descriptions.clear()
        q = ptq4snn.quantize(small_model(), x, progress=quiet, **few)
        ptq4snn.evaluate(q, [(x, y)], progress=quiet)
        compare(
            small_model(), x, [(x, y)], ["w4m4"], changes=few, progress=quiet, folder=tmp_path / f"{quiet}"
        )
        assert (bars.descriptions == []) == (quiet is False)
    assert "observing the float model" in bars.descriptions and bars.descriptions.count("evaluating") == 3
    own = Told()
    ptq4snn.quantize(small_model(), x, progress=own, **few)
    assert own.descriptions


def test_work_that_is_no_loop_advances_a_bar() -> None:
    shown: list[int] = []

    class Counting:
        def track(self, iterable: Iterable[Any], total: int | None, description: str) -> Iterator[Any]:
            assert (total, description) == (3, "work")
            for i in iterable:
                yield i
                shown.append(i)

    with stepping(Counting(), 3, "work") as advance:
        assert shown == []
        for done in ([0], [0, 1], [0, 1, 2]):
            advance()
            assert shown == done
    with pytest.raises(KeyError), stepping(RichProgress(), 3, "work"):
        raise KeyError


COSTS = {"reading": 1.0, "rounding": 2.0, "tuning": 1.0}


def test_the_bar_of_all_stages_never_goes_back() -> None:
    whole = progress.Whole(COSTS)
    assert whole.total == 4.0
    assert [whole.reached("reading", s) for s in (0.5, 1.0)] == [0.5, 1.0]
    assert whole.reached("rounding (gptq)", 0.25) == 1.5
    assert whole.reached("reading", 0.5) == 1.5  # once more, for a second way
    assert whole.reached("something else", 1.0) == 1.5
    assert whole.reached("tuning", 1.0) == 4.0  # what was skipped is behind


def test_bars_of_all_stages_and_of_each_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = RichProgress()
    seen: list[list[tuple[str, float | None, float]]] = []
    with progress.stages(bars, "quantizing", COSTS):
        for name in COSTS:
            for _ in bars.track(range(2), 2, name):
                seen.append([(t.description, t.total, t.completed) for t in bars._bars.tasks])
    assert seen[0] == [("quantizing", 4.0, 0.0), ("reading", 2, 0)]
    assert seen[3] == [("quantizing", 4.0, 2.0), ("rounding", 2, 1)]
    assert not bars._bars.tasks
    with progress.stages(Told(), "quantizing", COSTS), progress.stages(Silent(), "quantizing", COSTS):
        pass


@pytest.mark.parametrize(
    "words", ["fast+w4m4", "w4m4", "w3m2", "paper+nearest+w4m4", "paper+gptq+w4m4", "w2m2+distil"]
)
def test_every_stage_that_is_tracked_has_its_share_of_the_whole(
    small_model: Callable[..., nn.Module], images: Callable[..., Tensor], words: str
) -> None:
    """What is expected of a recipe is what happens, in that order."""
    told = Told()
    recipe = Recipe.parse(words)
    recipe = recipe.replace(distillation=2) if recipe.distillation else recipe
    ptq4snn.quantize(small_model(), images(48), recipe, progress=told)
    expected = list(expected_stages(recipe))
    found = list(dict.fromkeys(next(e for e in expected if d.startswith(e)) for d in told.descriptions))
    assert found == [e for e in expected if e in found] and len(found) >= len(expected) - 1

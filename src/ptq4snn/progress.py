"""How long work tells how far it is: a bar when stderr is a terminal, else silence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import is_there
from ptq4snn.team import number_here

__all__ = ["Lines", "Progress", "RichProgress", "Silent", "chosen", "for_terminal", "note", "stepping"]

T = TypeVar("T")


class Progress(Protocol):
    """Whatever can follow an iteration."""

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        """Yield the items of `iterable`, of which there are `total` (None: not known)."""
        ...


class Silent:
    """Progress that shows nothing."""

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        yield from iterable


class Lines(Silent):
    """Silent, but for what is worth a line of its own."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def note(progress: Progress, text: str) -> None:
    """A line that stays, where the progress has a method `note`; objects of users need none."""
    shown = getattr(progress, "note", None)
    if shown is not None:
        shown(text)


@contextmanager
def stepping(progress: Progress, total: int, description: str) -> Iterator[Callable[[], None]]:
    """A bar for work that is no loop: what comes out is called after each of its `total` parts."""
    items = iter(progress.track(range(total), total, description))
    next(items, None)

    def advance() -> None:
        next(items, None)

    try:
        yield advance
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


class RichProgress:
    """One bar on stderr per tracked iteration; it disappears when the iteration ends.

    Iterations may nest: rich allows one live display at a time, so they share it.
    """

    def __init__(self) -> None:
        from rich.console import Console  # here, because a piped run must not pay for the import
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
        self._open = 0

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        if self._open == 0:
            self._bars.start()
        self._open += 1
        task = self._bars.add_task(description, total=total)
        try:
            for item in iterable:
                yield item
                self._bars.advance(task)
        finally:
            self._bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self._bars.stop()


def for_terminal() -> Progress:
    """A bar when a person is watching stderr, silence when it is piped or there is no rich to draw one."""
    watched = sys.stderr.isatty() and number_here() == 0  # of processes that share a run one shows bars
    return RichProgress() if watched and is_there("rich") else Silent()


def chosen(progress: Progress | bool | None) -> Progress:
    """What the argument `progress` of the API means: None a bar on a terminal, False silence, else itself."""
    if progress is None or progress is True:
        return for_terminal()
    if progress is False:
        return Silent()
    if not hasattr(progress, "track"):
        raise PTQ4SNNError(
            f"progress must be True, False, None or an object with a method track, not {progress!r}"
        )
    return progress

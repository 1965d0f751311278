"""How long work tells how far it is: a bar when stderr is a terminal, else silence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import is_there
from ptq4snn.team import number_here

__all__ = [
    "Lines", "Progress", "RichProgress", "Silent", "chosen", "for_terminal", "note", "stages", "stepping",
]  # fmt: skip

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


def stages(progress: Progress, title: str, costs: Mapping[str, float]) -> AbstractContextManager[None]:
    """Inside, a second bar tells the time left of all stages, where the progress has a method `stages`.

    costs: of each stage, in their order and in any unit, by the first words of its description.
    """
    shown = getattr(progress, "stages", None)
    found: AbstractContextManager[None] = nullcontext() if shown is None else shown(title, costs)
    return found


class Whole:
    """How far all stages are: what lies behind is behind, also what took another way."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self.total, self.ends = 0.0, dict[str, tuple[float, float]]()  # where a stage begins and ends
        for name, cost in costs.items():
            self.ends[name] = (self.total, self.total + cost)
            self.total += cost
        self.done = 0.0

    def reached(self, description: str, share: float) -> float:
        """How much is done when `share` of a stage is; never less than before."""
        begin, end = next((e for n, e in self.ends.items() if description.startswith(n)), (0.0, 0.0))
        self.done = max(self.done, begin + share * (end - begin))
        return self.done


class RichProgress:
    """One bar on stderr per tracked iteration; it disappears when the iteration ends.

    Iterations may nest: rich allows one live display at a time, so they share it.
    """

    def __init__(self) -> None:
        from rich.console import Console  # here, because a piped run must not pay for the import
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )  # fmt: skip
        self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
        self._open = 0
        self._whole: Whole | None = None
        self._task: Any = None  # of the bar of all stages

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def track(self, iterable: Iterable[T], total: int | None, description: str) -> Iterator[T]:
        of = "?" if total is None else total
        with self._bar(description, total, f"0/{of}") as task:
            for done, item in enumerate(iterable, 1):
                yield item
                self._bars.update(task, completed=done, count=f"{done}/{of}")
                self._reach(description, done / total if total else 0.0)
            self._reach(description, 1.0)

    @contextmanager
    def stages(self, title: str, costs: Mapping[str, float]) -> Iterator[None]:
        """A bar of all stages above that of each; rich tells the time left by how fast it was lately."""
        whole = Whole(costs)
        with self._bar(title, whole.total, "in all") as self._task:
            self._whole = whole
            try:
                yield
            finally:
                self._whole = None

    @contextmanager
    def _bar(self, title: str, total: float | None, count: str) -> Iterator[Any]:
        if self._open == 0:
            self._bars.start()
        self._open += 1
        task = self._bars.add_task(title, total=total, count=count)
        try:
            yield task
        finally:
            self._bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self._bars.stop()

    def _reach(self, description: str, share: float) -> None:
        if self._whole is not None:
            self._bars.update(self._task, completed=self._whole.reached(description, share))


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

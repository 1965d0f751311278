"""Of the processes that share a run and end by an error, one says why; the others end after it, silently."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Protocol

from ptq4snn.errors import PTQ4SNNError, TeamError, ToldElsewhere

__all__ = ["LastWords", "Store"]

GRACE = timedelta(seconds=2)  # until process 0 meets the same error: its words are preferred
HEARING = timedelta(seconds=10)  # until whoever speaks has spoken: torchrun ends all as soon as one ends
_runs = count()  # every process counts alike


class Store(Protocol):
    """What all processes can read and write, also when they have lost each other."""

    def add(self, key: str, value: int, /) -> int: ...
    def set(self, key: str, value: str, /) -> None: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...


class LastWords:
    """Agrees with the other processes who speaks."""

    def __init__(self, store: Store, rank: int) -> None:
        self.store, self.rank = store, rank
        run = next(_runs)
        self.taken, self.spoken = f"ptq4snn/{run}/taken", f"ptq4snn/{run}/spoken"

    @contextmanager
    def of_one(self) -> Iterator[None]:
        """What ends the block is raised in the process that speaks, `ToldElsewhere` in the others."""
        try:
            yield
        except Exception as why:
            lost = isinstance(why, TeamError)
            if not self._speaks(at_once=lost or self.rank == 0):
                self._wait(self.spoken, HEARING)
                raise ToldElsewhere("another process says why the run ended") from why
            if isinstance(why, PTQ4SNNError):
                why.speaks = True
            raise
        except BaseException:  # Ctrl-C: the keyboard ends each
            self._speaks(at_once=True)
            raise

    def _speaks(self, at_once: bool) -> bool:
        """Whether no other process does; without the store nobody knows, and each does."""
        if not at_once:
            self._wait(self.taken, GRACE)
        try:
            first = self.store.add(self.taken, 1) == 1
        except RuntimeError:
            return True
        if first:
            atexit.register(self._has_spoken)
        return first

    def _has_spoken(self) -> None:
        with suppress(RuntimeError):
            self.store.set(self.spoken, "")

    def _wait(self, key: str, timeout: timedelta) -> None:
        with suppress(RuntimeError):
            self.store.wait([key], timeout)

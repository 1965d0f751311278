"""Work that runs beside other work and stands still whenever that does not wait for it: two networks in
lockstep, neither of which has to be remembered for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Beside"]

T = TypeVar("T")


class _Ended(BaseException):
    """Nobody waits for the work any more."""


class Beside(Generic[T]):
    """`work` in a thread of its own. Of the two threads exactly one runs at any time: the work begins with
    the first `advance`, and between two of them it stands in its `pause`. So what both do is done in one
    order, always the same. What torch knows of a thread (whether gradients are wanted) it has to say itself.
    """

    def __init__(self, work: Callable[[Callable[[], None]], T]) -> None:
        self._work = work
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._done, self._unwanted = False, False
        self._found: list[T] = []
        self._failed: BaseException | None = None

    def advance(self) -> bool:
        """Let it run to its next pause or to its end; whether it paused. What it raises is raised here."""
        if self._done:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="beside", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._stands.acquire()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        return not self._done

    def result(self) -> T:
        """Let it run to its end."""
        while self.advance():
            pass
        return self._found[0]

    def close(self) -> None:
        """End it where it stands, if it has not ended."""
        if self._thread is not None and not self._done:
            self._unwanted = True
            self._go.release()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._found.append(self._work(self._pause))
        except _Ended:
            pass
        except BaseException as why:  # raised again where it is waited for
            self._failed = why
        finally:
            self._done = True
            self._stands.release()

    def _pause(self) -> None:
        self._stands.release()
        self._go.acquire()
        if self._unwanted:
            raise _Ended

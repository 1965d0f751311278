"""A limit of memory and time around one case."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["MEMORY", "SECONDS", "bounded"]

MEMORY = 2**31  # bytes that a case may take besides what the process has
SECONDS = 30.0


class TooLong(Exception):
    """A case that did not end."""


@contextmanager
def bounded(memory: int = MEMORY, seconds: float = SECONDS) -> Iterator[None]:
    """Inside, more memory is a MemoryError, and more time TooLong; where the system knows such limits."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (ImportError, OSError):
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooLong(f"a case took more than {seconds:g} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

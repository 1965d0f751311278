"""Processes that share one run, started by torchrun:

    torchrun --nproc-per-node 2 -m ptq4snn quantize ...

All of them run the same program and take the same decisions. What is long is dealt out in pieces, each
process takes every n-th, and every result is told to all in the order of the pieces: nothing depends on how
many processes there are. An error of one is raised in all, and one tells it. Process 0 alone writes and
speaks.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from ptq4snn.errors import PTQ4SNNError, TeamError
from ptq4snn.last_words import LastWords

__all__ = ["SOLO", "Team", "from_environment", "number_here"]

T = TypeVar("T")
X = TypeVar("X")
TIMEOUT = 1800.0  # seconds that a process may keep the others waiting; PTQ4SNN_TIMEOUT is another
ALMOST = 0.9  # of it: clocks differ
LONGEST = 10**6  # seconds: torch counts them in nanoseconds of 64 bits


@dataclass(frozen=True)
class Team:
    """The process of number `rank` among `size`; `sent` counts the bytes it has told, by what they are."""

    rank: int = 0
    size: int = 1
    timeout: float = TIMEOUT
    sent: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes and speaks."""
        return self.rank == 0

    def mine(self, number: int) -> bool:
        """Whether the piece of this number is this process's."""
        return number % self.size == self.rank

    def deal(self, pieces: Iterable[T]) -> Iterator[tuple[int, T]]:
        """The pieces of this process with their numbers."""
        return ((i, piece) for i, piece in enumerate(pieces) if self.mine(i))

    def all(self, value: T, what: str) -> list[T]:
        """Everybody's value, in the order of their numbers."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        self.sent[what] = self.sent.get(what, 0) + len(pickle.dumps(value)) * (self.size - 1)
        found: list[Any] = [None] * self.size
        began = time.monotonic()
        try:
            dist.all_gather_object(found, value)
        except (RuntimeError, EOFError, ValueError) as why:
            raise self._lost(time.monotonic() - began, what) from why
        return found

    def _lost(self, seconds: float, what: str) -> TeamError:
        """Why another gave nothing for so long: a dead one is noticed at once."""
        slow = seconds >= ALMOST * self.timeout
        how = f"did not answer for {self.timeout:g} s" if slow else "has died"
        return TeamError(
            f"another of the {self.size} processes {how} ({what}): look at its last words, and start again; "
            "--work keeps what is finished"
        )

    def map(self, work: Callable[[X], T], pieces: Iterable[X], what: str) -> list[T]:
        """work(piece) of all pieces, in their order, each done by one process."""
        if self.size == 1:
            return [work(piece) for piece in pieces]
        with self.raised_in_all(what):
            own = {i: work(piece) for i, piece in self.deal(pieces)}
        joined: dict[int, T] = {}
        for part in self.all(own, what):
            joined |= part
        return [joined[i] for i in range(len(joined))]

    def told(self, work: Callable[[], T], what: str) -> T:
        """What process 0 finds, known to all: looked up once, so that nobody decides otherwise."""
        with self.raised_in_all(what):
            found = work() if self.leads else None
        return self.all(found, what)[0]  # type: ignore[return-value]

    @contextmanager
    def raised_in_all(self, what: str) -> Iterator[None]:
        """What one process raises inside is raised in all, the lowest number's first."""
        failed: BaseException | None = None
        try:
            yield
        except Exception as why:
            failed = why
        if self.size == 1:
            if failed is not None:
                raise failed
            return
        if isinstance(failed, TeamError):  # nobody is there to be told
            raise failed
        for error in self.all(_portable(failed), what):
            if error is not None:
                raise error

    @contextmanager
    def led(self, place: AbstractContextManager[object], what: str) -> Iterator[None]:
        """Inside of what process 0 alone enters, such as a lock; if it cannot, all hear why."""
        with ExitStack() as entered:
            with self.raised_in_all(what):
                if self.leads:
                    entered.enter_context(place)
            yield


SOLO = Team()


def _portable(error: BaseException | None) -> BaseException | None:
    """An exception that another process can read."""
    try:
        again: BaseException | None = pickle.loads(pickle.dumps(error))  # noqa: S301, our own
        return again
    except Exception:
        return PTQ4SNNError(f"{type(error).__name__}: {error}")


def number_here() -> int:
    """The number that torchrun gave this process, 0 without it."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def from_environment(device: str | None = None) -> Iterator[Team]:
    """The team that torchrun started this process in; alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SOLO
        return
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    seconds = _timeout()
    on_gpu = device is not None and device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if on_gpu else "gloo"
    timeout = timedelta(seconds=seconds)
    with _found(size):
        store, rank, size = next(rendezvous("env://", timeout=timeout))
    try:
        with LastWords(store, rank).of_one():
            with _found(size):
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
            yield Team(rank, size, seconds)
    finally:  # behind the agreement on who speaks: the others notice it
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _found(size: int) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as why:
        raise TeamError(
            f"the {size} processes of torchrun did not find each other: look whether all were started, and "
            "whether MASTER_ADDR and MASTER_PORT lead to the first"
        ) from why


def _timeout() -> float:
    text = os.environ.get("PTQ4SNN_TIMEOUT", str(TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST:
        raise TeamError(
            f"PTQ4SNN_TIMEOUT is {text!r}: give the seconds that a process may be waited for, at most "
            f"{LONGEST:,}"
        )
    return seconds

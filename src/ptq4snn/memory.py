"""What is done when memory runs out: the samples that run at once are halved, and the work is done again.

A stage gives `Room.run` a batch and what is to be done with a portion of it. Portions are put together so
that nothing depends on their size: counts and extremes add up, outputs are rows, and what a sum would round
otherwise is held back until the batch is whole. So the bits are the same, only later.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ptq4snn.errors import MemoryWarning, OutOfMemory

if TYPE_CHECKING:  # bundles are run without torch
    from torch import Tensor

__all__ = ["Portion", "Room", "Undo", "in_words", "ran_out"]

T = TypeVar("T")
Undo = Callable[[], None]
SAID = (  # by torch's allocators, oneDNN and C++; none of them has an exception of its own on a CPU
    "can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "Cannot allocate memory",
    "could not create a memory object", "could not create a primitive",
)  # fmt: skip


class Told(OutOfMemory):
    """Said in words already: nothing is gained by smaller portions."""


def ran_out(why: BaseException) -> bool:
    """Whether an exception says that there is no memory left."""
    return isinstance(why, MemoryError) or (
        isinstance(why, RuntimeError) and any(text in str(why) for text in SAID)
    )


@dataclass(frozen=True)
class Portion:
    """Samples `first` to `first + count` of a batch of `whole`."""

    x: Tensor
    first: int
    count: int
    whole: int

    @property
    def is_whole(self) -> bool:
        return self.count == self.whole

    def check_rows(self, rows: int, what: str) -> None:
        """Where samples are counted by rows, a row must be a sample."""
        if not self.is_whole and rows != self.count:
            raise Told(
                f"there is not enough memory for {self.whole} samples at once, and fewer would give other "
                f"numbers, for '{what}' takes {rows} rows of {self.count} samples: set micro_batch in the "
                f"recipe to {self.count} or less, or find more memory"
            )


@dataclass
class Room:
    """How many samples run at once: all that come, until memory runs out; from then on as many as fitted.

    axis: where a batch has its samples.
    whole: why samples must not be parted; empty: they may.
    """

    axis: int = 0
    whole: str = ""
    most: int | None = None

    def run(
        self, x: Tensor, work: Callable[[Portion], T], what: str, mark: Callable[[], Undo] | None = None
    ) -> list[T]:
        """work(portion) of all portions of x, in order. `mark` is called in front of each; what it returns
        takes back what a portion left behind that failed."""
        found: list[T] = []
        first, whole = 0, x.shape[self.axis]
        while first < whole:
            count = min(self.most or whole, whole - first)
            part = x if count == whole else x.narrow(self.axis, first, count).contiguous()
            undo, failed = None if mark is None else mark(), False
            try:
                found.append(work(Portion(part, first, count, whole)))
            except (MemoryError, RuntimeError) as why:
                if not ran_out(why) or isinstance(why, Told):
                    raise
                failed = True
            if not failed:
                first += count
                continue
            if undo is not None:
                undo()
            self._halve(count, what)
        return found

    def smaller(self, most: int) -> Room:
        """For work that holds more of every sample: `most` at once where they may be parted."""
        return self if self.whole else Room(self.axis, "", min(most, self.most or most))

    def _halve(self, count: int, what: str) -> None:
        """Behind the handler: what failed holds its memory as long as its exception lives."""
        gc.collect()
        if count == 1:
            raise Told(
                f"there is not enough memory for a single sample ({what}): take smaller samples, fewer time "
                f"steps, or a machine with more memory"
            )
        if self.whole:
            raise Told(
                f"there is not enough memory for {count} samples at once ({what}), and fewer would give "
                f"other numbers, for {self.whole}: set micro_batch in the recipe to {count // 2}"
            )
        self.most = count // 2
        warnings.warn(
            f"there is not enough memory for {count} samples at once ({what}): {self.most} from here on, "
            f"which takes longer and gives the same",
            MemoryWarning,
            stacklevel=3,
        )


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """What runs out of memory inside, and cannot be parted, says so in one sentence."""
    try:
        yield
    except Told:
        raise
    except (MemoryError, RuntimeError) as why:
        if not ran_out(why):
            raise
        raise Told(
            f"there is not enough memory {what}: take fewer or smaller samples at a time (micro_batch in the "
            f"recipe, --batch-size), fewer time steps, or a machine with more memory"
        ) from why

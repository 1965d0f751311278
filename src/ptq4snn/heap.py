"""Memory that is free goes back to the system, which glibc's malloc does late or not at all.

A tensor that is freed leaves its pages in the heap, in a piece that lies between what is used; the next
tensors, of other sizes, take new pages beside. In a network of large layers such pieces were as much again as
all tensors that live. Nothing here changes a result.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["at_hand", "give_back", "sparing", "trim_behind"]

SMALL = 2**23  # numbers of a network's weights and of its widest neuron's spikes; below, it is not worth it
PIECE = 2**18  # bytes from which on a tensor gets pages of its own where memory is spared
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of mallopt
SELDOM = 20  # times longer than it takes to give memory back, nobody does it behind a layer
LARGEST = 2**25  # bytes, what glibc comes to by itself once a piece as large was freed


@dataclass
class _State:
    numbers: int = SMALL  # of the network at hand, as `SMALL` counts them
    sparing: int = 0  # how many are inside of `sparing`
    after: float = 0.0  # by the clock, memory is given back behind a layer


STATE = _State()


def at_hand(numbers: int) -> None:
    """Memory of a network of so many numbers is spared, or is not worth it."""
    STATE.numbers = numbers


def give_back() -> None:
    """Between two stages: what is free goes back to the system."""
    glibc = _glibc()
    if glibc is not None and STATE.numbers >= SMALL:
        gc.collect()
        glibc.malloc_trim(0)


def trim_behind() -> None:
    """Behind a layer, where memory is spared: tensors also lie in pieces that were free before."""
    began = time.monotonic()
    if STATE.sparing and began >= STATE.after:
        _glibc().malloc_trim(0)
        now = time.monotonic()
        STATE.after = now + SELDOM * (now - began)


@contextmanager
def sparing() -> Iterator[None]:
    """For stages that hold more than the float network: inside, a tensor has pages of its own, which go back
    when it is freed. New pages take time, a third of such a stage and more. Afterwards glibc keeps what is
    free as it does in any process that once freed a large tensor."""
    glibc = _glibc()
    if glibc is None or STATE.numbers < SMALL:
        yield
        return
    give_back()
    STATE.sparing += 1
    glibc.mallopt(MMAP_THRESHOLD, PIECE)
    glibc.mallopt(TRIM_THRESHOLD, PIECE)
    try:
        yield
    finally:
        STATE.sparing -= 1
        if not STATE.sparing:
            glibc.mallopt(MMAP_THRESHOLD, LARGEST)
            glibc.mallopt(TRIM_THRESHOLD, 2 * LARGEST)
        give_back()


@cache
def _glibc() -> Any:
    """The C library, where it is glibc; others give memory back by themselves, or cannot be told to."""
    if not sys.platform.startswith("linux"):
        return None
    found = ctypes.CDLL(None)
    return found if hasattr(found, "malloc_trim") and hasattr(found, "mallopt") else None

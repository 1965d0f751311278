"""The shared library of the kernels, through ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from operator import is_
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import Cancelled, OutOfMemory, PTQ4SNNError
from ptq4snn.runtime.native.layout import COUNTERS, REQUEST

__all__ = ["Buffers", "Call", "Engine", "Library", "library"]

Array: TypeAlias = NDArray[Any]

SENTENCE = 512  # bytes of an error
CANCELLED = b"the call was cancelled"  # csrc/engine.h
NO_MEMORY = (b"there is not enough memory", b"std::bad_alloc")  # csrc/tables.cpp, and C++ itself
OFF = "numpy"  # of PTQ4SNN_KERNELS: use no library


class Request(ctypes.Structure):
    """csrc/layout.h"""

    _fields_ = [(name, c_int64 if kind == "int64_t" else c_void_p) for name, kind, _ in REQUEST]


class Caller(ctypes.Structure):
    """csrc/engine.h: how the kernels give Python's lock away, ask whether Ctrl-C was pressed, and see that
    another thread counted `cancels` up."""

    _fields_ = [("leave", c_void_p), ("enter", c_void_p), ("cancelled", c_void_p), ("cancels", c_void_p)]

    @classmethod
    def python(cls, cancels: c_int64) -> Caller:
        names = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")
        functions = (ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p) for name in names)
        return cls(*functions, ctypes.addressof(cancels))


WITH_LOCK = ("ptq_run",)  # called with Python's lock, which it gives away itself

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ptq_hash": (c_char_p, []),
    "ptq_levels": (c_int, [POINTER(c_char), c_int64]),
    "ptq_create": (c_void_p, [c_void_p, c_int64, c_char_p, c_int, POINTER(c_char), c_int64]),
    "ptq_destroy": (None, [c_void_p]),
    "ptq_run": (c_int, [c_void_p, POINTER(Request), POINTER(Caller), POINTER(c_char), c_int64]),
    "ptq_size": (c_int64, [c_void_p, c_int]),
    "ptq_statistics": (None, [c_void_p, c_void_p, c_int64]),
    "ptq_peak": (c_double, [c_char_p, c_int, c_int]),
}


class Library:
    """One loaded library; OSError or AttributeError where it is none of ours."""

    def __init__(self, path: Path) -> None:
        self.call = ctypes.CDLL(str(path))
        with_lock = ctypes.PyDLL(str(path))  # raises what a signal handler raised
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(with_lock if name in WITH_LOCK else self.call, name)
            function.restype, function.argtypes = result, arguments
        self.run = with_lock.ptq_run
        names = ctypes.create_string_buffer(SENTENCE)
        self.call.ptq_levels(names, SENTENCE)
        self.levels = tuple(names.value.decode().split(","))  # the best last

    @property
    def hash(self) -> str:
        return str(self.call.ptq_hash().decode())


@cache
def library() -> Library | None:
    """The library of this package; None where it was not built, or from other sources, or is not wanted."""
    # imported here, so that `python -m ptq4snn.runtime.native.build` is not imported before it runs
    from ptq4snn.runtime.native import build

    wanted = os.environ.get("PTQ4SNN_KERNELS") != OFF and sys.byteorder == "little"
    if not wanted or not build.LIBRARY.is_file():
        return None
    again = "build it with python -m ptq4snn.runtime.native.build; NumPy is used until then"
    try:
        if not build.is_fresh(build.LIBRARY):
            warnings.warn(f"the native kernels were built from other sources: {again}", stacklevel=2)
            return None
        found = Library(build.LIBRARY)
    except (OSError, AttributeError) as why:
        warnings.warn(f"the native kernels cannot be loaded ({why}): {again}", stacklevel=2)
        return None
    return found if found.hash == build.source_hash() else None


def _address(a: Array) -> int:
    return int(a.__array_interface__["data"][0])  # a third of the time of a.ctypes


class Buffers:
    """Arrays that the kernels read and write, with their addresses and sizes: looked up once."""

    def __init__(self, count: int) -> None:
        self.pointers, self.sizes = (c_void_p * max(1, count))(), (c_int64 * max(1, count))()
        self._arrays: Sequence[Array] = ()

    @classmethod
    def states(cls, arrays: Sequence[Array], own: Sequence[Array]) -> Buffers:
        """Sizes in bytes. `own`: the same arrays in the order of the state that they belong to."""
        made = cls(len(arrays))
        made._arrays = own
        for i, a in enumerate(arrays):
            made.pointers[i], made.sizes[i] = _address(a), a.nbytes
        return made

    @classmethod
    def kept(cls, arrays: Mapping[int, Array], slots: Mapping[int, int]) -> Buffers:
        """Sizes in numbers; slots without an array are not written."""
        made = cls(len(slots))
        for v, a in arrays.items():
            made.pointers[slots[v]], made.sizes[slots[v]] = _address(a), a.size
        return made

    def are_of(self, rows: Mapping[int, Array], sums: Mapping[int, Array]) -> bool:
        """Whether a state holds these arrays still: somebody may have given it others."""
        now = [*rows.values(), *sums.values()]
        return len(now) == len(self._arrays) and all(map(is_, now, self._arrays))


@dataclass(frozen=True)
class Call:
    """How a plan is run once; the arrays apart."""

    steps: int
    first_step: int  # of the states that go on
    threads: int
    path: int  # number of a name in PATHS
    profile: bool  # whether operations are timed


class Engine:
    """A plan inside the library: it has copied what it needs."""

    def __init__(self, lib: Library, block: Array, level: str, expanded: bool = False) -> None:
        self._lib, self._engine, self._cancels = lib, None, c_int64(0)
        self._caller = Caller.python(self._cancels)
        error = ctypes.create_string_buffer(SENTENCE)
        made = lib.call.ptq_create(block.ctypes.data, block.nbytes, level.encode(), expanded, error, SENTENCE)
        if not made:
            kind = OutOfMemory if error.value in NO_MEMORY else PTQ4SNNError
            raise kind(f"the native kernels refuse the model: {error.value.decode()}")
        self._engine = made

    def __del__(self) -> None:
        if self._engine is not None:
            self._lib.call.ptq_destroy(self._engine)

    def run(self, call: Call, x: Array, states: tuple[Buffers, Buffers] | None, kept: Buffers) -> None:
        """`states`: those that the call begins with and where it leaves them, which may be the same; they and
        `kept` are in the order of the plan.

        A signal whose handler raises (Ctrl-C) ends the call between two operations, and is raised here; what
        it writes is then half written.
        """
        address = ctypes.addressof
        some: tuple[int | None, ...] = (None, None, None)
        if states is not None:
            begin, end = states
            if bytes(begin.sizes) != bytes(end.sizes):
                raise PTQ4SNNError("the native kernels refuse the call: its states have two sizes")
            some = address(begin.pointers), address(end.pointers), address(end.sizes)
        request = Request(
            _address(x), x.shape[0], x.shape[1], x.shape[2], call.steps, call.first_step,
            *some, address(kept.pointers), address(kept.sizes), call.threads, call.path, call.profile,
        )  # fmt: skip
        error, before = ctypes.create_string_buffer(SENTENCE), self._cancels.value
        if self._lib.run(self._engine, byref(request), byref(self._caller), error, SENTENCE):
            if self._cancels.value != before and error.value == CANCELLED:
                raise Cancelled(CANCELLED.decode())
            kind = OutOfMemory if error.value in NO_MEMORY else PTQ4SNNError
            raise kind(f"the native kernels refuse the call: {error.value.decode()}")

    def cancel(self) -> None:
        """End the calls that run, between two operations; those that begin later are not meant."""
        self._cancels.value += 1

    def size(self, what: int) -> int:
        """0 weights and parameters, 1 values and scratch of the last call, 2 packed state of a sample."""
        return int(self._lib.call.ptq_size(self._engine, what))

    def counters(self, operations: int) -> Array:
        """[operations, len(COUNTERS)] of the last call."""
        out = np.zeros((operations, len(COUNTERS)), dtype=np.int64)
        self._lib.call.ptq_statistics(self._engine, out.ctypes.data, operations)
        return out

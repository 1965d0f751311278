"""CIFAR's python version: pickled dictionaries, read without running anything that they name.

A pickle names the functions that rebuild its objects. Here stand-ins take the place of the few that the
official files name (a numpy array and its dtype, written by Python 2 or 3); every other name is refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ptq4snn.data.images import Pixels
from ptq4snn.errors import DataError

__all__ = ["read_python"]


def read_python(file: Path, labels: str, width: int) -> tuple[Pixels, npt.NDArray[np.int64]]:
    """Images uint8 [N, width] of `data` and the class numbers [N] of the list `labels`."""
    try:
        data = file.read_bytes()
        _refuse_large(data)
        content = _Reader(io.BytesIO(data), encoding="bytes").load()
        found = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
        images = found["data"].pixels()
        classes = np.array(_flat(found[labels]), np.int64)
    except OSError as e:
        raise DataError(f"cannot read the data file {file}: {e.strerror or e}") from e
    except _Refused as e:
        raise DataError(
            f"{file} names {e}, which CIFAR's files do not, and loading it could run code: "
            "unpack the archive again"
        ) from e
    except Exception as e:  # arbitrary bytes make the parser raise anything
        raise DataError(
            f"{file} is truncated or not a CIFAR file with data and {labels}: unpack the archive again"
        ) from e
    if images.ndim != 2 or images.shape[1] != width or classes.shape != images.shape[:1] or not len(images):
        raise DataError(
            f"{file}: data has shape {list(images.shape)} and {labels} {list(classes.shape)} instead of "
            f"[N, {width}] and [N]: unpack the archive again"
        )
    return images, classes


def _refuse_large(data: bytes) -> None:
    """Before anything is loaded: a pickle may ask for a numbered place beyond any that it fills, or for more
    bytes than follow (then `genops` raises), and Python makes room for all of it."""
    for ops, (op, arg, _) in enumerate(pickletools.genops(data), 1):
        if op.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(arg or 0) > ops:
            raise ValueError("a place is numbered beyond those that are filled")


def _flat(labels: list[int]) -> list[int]:
    """A list that holds one list many times, and that again, is short in the file, and an array of all."""
    if any(isinstance(label, list | tuple) for label in labels):
        raise ValueError("labels are no list of numbers")
    return labels


class _Refused(Exception):
    """The name of something that must not be loaded."""


class _Array:
    """Stands for a numpy array: `_reconstruct(ndarray, (0,), "b")`, then its state."""

    state: tuple[Any, ...]

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state  # version, shape, dtype, Fortran order, bytes

    def pixels(self) -> Pixels:
        _, shape, dtype, fortran, raw = self.state
        if dtype.name not in (b"u1", "u1"):
            raise ValueError("not bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _DType:
    """Stands for a numpy dtype: `dtype("u1", 0, 1)`, then its byte order, which bytes do not have."""

    def __init__(self, name: object, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None: ...


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in a protocol for Python 2."""
    if encoding != "latin1":
        raise _Refused(f"the encoding {encoding}")
    return text.encode("latin1")


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): object,  # an argument only
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise _Refused(f"{module}.{name}")
        return STAND_INS[module, name]

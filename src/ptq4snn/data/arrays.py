"""Files of arrays: .npy, .npz and .safetensors with samples x and maybe labels y. Does not import torch.

The samples of a file with several arrays are x, or else the only one besides y.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open

from ptq4snn.errors import DataError
from ptq4snn.files import short

__all__ = ["READERS", "UNREADABLE", "open_arrays", "readable"]

Framework = Literal["np", "pt"]
# what damaged files make the parsers raise; headers of .npy files are parsed as Python
UNREADABLE = (
    ValueError, EOFError, zipfile.BadZipFile, zlib.error, SafetensorError, TypeError, SyntaxError,
    tokenize.TokenError, RecursionError, OverflowError, RuntimeError, KeyError,  # an encrypted part of a .npz
)  # fmt: skip


def open_arrays(path: Path, framework: Framework = "np") -> tuple[Any, Any]:
    """x, and y or None: a .npy is mapped, a .npz read whole, a .safetensors sliced by numpy or torch."""
    with readable(path):
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise DataError(f"{short(path)} is no regular file: give a {path.suffix} file of numbers")
        return READERS[path.suffix](path, framework)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What is wrong with a data file as one sentence."""
    try:
        yield
    except FileNotFoundError as e:
        raise DataError(f"there is no data file {short(path)}") from e
    except OSError as e:
        raise DataError(f"cannot read the data file {short(path)}: {e.strerror or e}") from e
    except UNREADABLE as e:
        raise DataError(f"{short(path)} is truncated or not a {path.suffix} file of numbers") from e
    except MemoryError as e:
        raise DataError(f"{short(path)} claims more numbers than memory can hold: is it damaged?") from e


def read_npy(path: Path, framework: Framework) -> tuple[Any, Any]:
    return np.load(path, mmap_mode="r", allow_pickle=False), None


def read_npz(path: Path, framework: Framework) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        x, y = names_of(path, arrays.files)
        found = arrays[x], None if y is None else arrays[y]
        if any(isinstance(part, bytes) for part in found):  # NumPy's answer to a part that is no array
            raise ValueError("not an array")
        return found


def read_safetensors(path: Path, framework: Framework) -> tuple[Any, Any]:
    if not path.exists():
        raise FileNotFoundError(path)
    handle: Any = safe_open(path, framework=framework)  # stays open: x and y are read slice by slice
    x, y = names_of(path, list(handle.keys()))
    return handle.get_slice(x), None if y is None else handle.get_slice(y)


def names_of(path: Path, names: list[str]) -> tuple[str, str | None]:
    """The names of samples and labels."""
    y = "y" if "y" in names else None
    others = [name for name in names if name != y]
    if "x" in names or len(others) == 1:
        return "x" if "x" in names else others[0], y
    found = short(", ".join(names)) or "nothing"
    raise DataError(f"{short(path)} holds {found} but no x: name the samples x and the labels y")


READERS: dict[str, Callable[[Path, Framework], tuple[Any, Any]]] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".safetensors": read_safetensors,
}

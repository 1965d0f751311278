"""The one place that makes hashes of content: SHA-256 of values, each with its kind and length before it.

Equal values have the same hash, whatever process, machine or container they come from: keys of a mapping are
sorted, arrays and tensors are their type, shape and bytes in row order, lists and tuples are alike. The bytes
of a bundle have a checksum of their own (docs/format.md). Torch is not imported here.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a page is made and a bundle is named without it
    import numpy as np

__all__ = ["Hash", "code_digest", "digest", "file_digest"]

CHUNK = 1 << 22  # bytes of a file that are read at a time


class Hash:
    """A hash to which values are added one by one."""

    def __init__(self, *values: object) -> None:
        self._hash = hashlib.sha256()
        for value in values:
            self.add(value)

    def add(self, value: object) -> None:
        """None, truth values, numbers, text, bytes, arrays, tensors, and sequences and mappings of such."""
        import numpy as np

        if value is None or isinstance(value, bool | int | float | str | np.generic):
            plain = value.item() if isinstance(value, np.generic) else value
            self._put(type(plain).__name__, str(plain).encode("utf-8", "surrogatepass"))
        elif isinstance(value, bytes | bytearray | memoryview):
            self._put("bytes", value)
        elif isinstance(value, Mapping):
            self._put("mapping", str(len(value)).encode())
            for key in sorted(value, key=str):
                self.add(str(key))
                self.add(value[key])
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif hasattr(value, "detach"):
            self._array(_numpy(value), str(value.dtype).removeprefix("torch."))  # type: ignore[attr-defined]
        elif isinstance(value, Iterable) and not isinstance(value, set | frozenset):  # those have no order
            items = list(value)
            self._put("list", str(len(items)).encode())
            for item in items:
                self.add(item)
        else:
            raise TypeError(f"a {type(value).__name__} has no hash of its content")

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _put(self, kind: str, content: bytes | bytearray | memoryview) -> None:
        self._hash.update(f"{kind} {len(content)}:".encode())
        self._hash.update(content)

    def _array(self, array: np.ndarray[Any, Any], dtype: str | None = None) -> None:
        """Bytes in row order, little-endian; `dtype` where numpy has no name for the type."""
        import numpy as np

        if array.dtype.hasobject:
            raise TypeError("an array of Python objects has no hash of its content")
        if array.dtype.byteorder == ">" or (sys.byteorder == "big" and array.dtype.byteorder == "="):
            array = array.astype(array.dtype.newbyteorder("<"))
        shape = list(array.shape) if dtype is None else list(array.shape[:-1])
        flat = np.ascontiguousarray(array).reshape(-1)
        self._put(f"array {dtype or array.dtype.name} {shape}", flat.view(np.uint8).data)


def digest(*values: object) -> str:
    """64 hexadecimal digits: SHA-256 of the values in their order."""
    return Hash(*values).hexdigest()


def file_digest(path: Path) -> str:
    """Of a file's bytes."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            found.update(part)
    return found.hexdigest()


@cache
def code_digest() -> str:
    """Of the library's own sources: what other code has stored is not taken for the result of this."""
    root = Path(__file__).parent
    return digest(
        [(path.relative_to(root).as_posix(), path.read_bytes()) for path in sorted(root.rglob("*.py"))]
    )


def _numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor's bytes as [*shape, bytes of an element]: numpy has no bfloat16 and no 8-bit floats."""
    import torch

    t = tensor.detach()
    t = (t if t.layout == torch.strided else t.to_dense()).cpu().resolve_conj().resolve_neg().contiguous()
    found: np.ndarray[Any, Any] = t.reshape(-1, 1).view(torch.uint8).numpy()
    return found.reshape(*t.shape, t.element_size())

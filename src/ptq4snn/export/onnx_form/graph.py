"""An ONNX graph while it is written: nodes, and constants that are stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import needed_by
from ptq4snn.numerics.limits import EXACT_FLOAT32

with needed_by("ptq4snn.export.onnx"):
    from onnx import TensorProto, helper, numpy_helper

__all__ = ["CODES", "Name", "Nodes", "Pool", "carrier"]

Name = str
Array = NDArray[Any]
MAX_BYTES = 2**31 - 2**24  # of all constants: protobuf's limit, less what else stands in a file
CODES = {  # of NumPy's types
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "int8": TensorProto.INT8,
}  # fmt: skip


def carrier(largest: int) -> str:
    """The float that holds every whole number up to `largest` exactly; bounds.py proves that float64 does."""
    return "float32" if largest < EXACT_FLOAT32 else "float64"


class Pool:
    """Constants of a model, each content once."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.bytes = 0
        self._known: dict[tuple[str, tuple[int, ...], bytes], Name] = {}

    def constant(self, array: Array) -> Name:
        array = np.asarray(array, order="C")
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            self._count(array.nbytes)
            name = f"c{len(self.tensors)}"
            self.tensors.append(numpy_helper.from_array(array, name))
            self._known[key] = name
        return self._known[key]

    def packed(self, weights: Array) -> Name:
        """Whole numbers of 4 bits, two in a byte."""
        key = "int4", weights.shape, np.ascontiguousarray(weights).tobytes()
        if key not in self._known:
            self._count(weights.size // 2)
            name = f"c{len(self.tensors)}"
            tensor = helper.make_tensor(
                name, TensorProto.INT4, weights.shape, weights.astype(np.int8).reshape(-1).tolist()
            )
            self.tensors.append(tensor)
            self._known[key] = name
        return self._known[key]

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes > MAX_BYTES:
            raise PTQ4SNNError("the network's numbers take more than 2 GiB, and a file of ONNX holds no more")


class Nodes:
    """Nodes of one graph. Names are numbers: nothing of a bundle's text gets into the model."""

    def __init__(self, pool: Pool, prefix: str) -> None:
        self.pool, self.prefix = pool, prefix
        self.nodes: list[Any] = []

    def __call__(self, kind: str, *inputs: Name, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the output of a new node, or the names of several."""
        names = [f"{self.prefix}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = None) -> Name:
        return self.pool.constant(np.asarray(value, dtype=dtype))

    def shape(self, *sizes: int) -> Name:
        return self.constant(sizes, np.int64)

    def cast(self, x: Name, dtype: str) -> Name:
        name: Name = self("Cast", x, to=CODES[dtype])
        return name

    def reshape(self, x: Name, *sizes: int) -> Name:
        name: Name = self("Reshape", x, self.shape(*sizes))
        return name

    def take(self, x: Name, index: Array, axis: int) -> Name:
        name: Name = self("Gather", x, self.constant(index, np.int64), axis=axis)
        return name

    def fold(self, kind: str, parts: Sequence[Name]) -> Name:
        """All parts by a kind of two inputs."""
        out = parts[0]
        for part in parts[1:]:
            out = self(kind, out, part)
        return out

"""Numbers of a program's projections, neurons and mirrors, read from a bundle's plan and arrays.

All integers are int64 and have one entry for each channel of the module, in its own order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.network.program import Program
from ptq4snn.network.program_json import program_to_json

__all__ = ["Bounds", "InputGrid", "Mirror", "Model", "NeuronNumbers", "ProjectionNumbers", "Rescale"]

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class InputGrid:
    """p = clip(rint(x * (1 / scale) + zero / 2^16), 0, 255), one entry or one for each input channel.

    Where the model normalises its input, `behind` is the level that stands for 0 behind that."""

    scales: Reals
    zeros: Integers  # 16 bits behind the point
    behind: Integers | None = None  # likewise

    @property
    def inside(self) -> Integers:
        """The level that stands for 0 at the projection: the bias subtracts it under every tap."""
        return self.zeros if self.behind is None else self.behind


@dataclass(frozen=True)
class Rescale:
    """clip(rshift(y * multiplier, shift)) to `bits` bits; the result is worth `scales`."""

    multipliers: Integers
    shifts: Integers
    bits: int
    scales: Reals


@dataclass(frozen=True)
class ProjectionNumbers:
    """y = ((Wq x) << shift) + bias [- the zero points of the input under the taps inside the image]."""

    weight: NDArray[np.int8]  # [Cout, Cin / groups, *kernel]
    bits: int
    bias: Integers
    shift: int
    over_time: bool
    input: InputGrid | None
    rescale: Rescale | None
    unit: Reals  # what one step of y is worth, before a rescale
    role: str


@dataclass(frozen=True)
class NeuronNumbers:
    """The equations are in docs/format.md. x is shifted left by `shift` (0 where it counts units already)."""

    shift: int
    over_time: bool
    bits: Integers
    zero: Integers
    low: Integers  # zero - 2^(bits - 1)
    high: Integers  # zero + 2^(bits - 1) - 1
    theta: Integers
    rho: Integers
    charge_m: Integers
    charge_n: Integers
    settle_m: Integers
    settle_n: Integers
    reset: str
    rounding: str
    unit: Reals
    v_rest: float
    shape: tuple[int, ...]  # one sample's state as the model sees it
    lift_m: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # of a state that is handed on:
    lift_n: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # rshift(Vq m, n) counts units
    most: int = 1  # spikes of a step; above 1, S = floor(A / theta), 0 .. most

    @property
    def taken(self) -> int:
        """The largest |rho S| of a neuron that counts; else 0, for then it is rho."""
        return self.most * int(np.abs(self.rho).max()) if self.most > 1 else 0


@dataclass(frozen=True)
class Mirror:
    signs: Integers
    shifts: Integers


@dataclass(frozen=True)
class Bounds:
    """Proven ranges, also of everything that is added up on the way, in any order.

    `values[v]` (least, largest) of every value; `sums[name]` of Wq x of a projection before the shift, both
    [Cout]; `potentials[name]` the largest |A| of a neuron, also after its reset. All fit int32, except what
    comes behind a sum over time and the potentials of 32-bit states: these stay below 2^53. All hold for
    sequences and sessions of up to `steps` steps.
    """

    values: tuple[tuple[int, int], ...]
    sums: dict[str, tuple[Integers, Integers]]
    potentials: dict[str, int]
    steps: int


@dataclass(frozen=True)
class Model:
    """Everything a runtime needs; checked and bounded (`loading.py`)."""

    program: Program
    projections: dict[str, ProjectionNumbers]
    neurons: dict[str, NeuronNumbers]
    mirrors: dict[str, Mirror]
    bounds: Bounds

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the program and of all its numbers: what a saved state belongs to."""
        digest = self._weighed.copy()
        for kind in (self.neurons, self.mirrors):
            _add(digest, kind)
        return str(digest.hexdigest())

    @cached_property
    def _weighed(self) -> Any:
        """What `hash` begins with: program and projections."""
        digest = hashlib.sha256(json.dumps(program_to_json(self.program), sort_keys=True).encode())
        _add(digest, self.projections)
        return digest

    def with_neurons(self, neurons: dict[str, NeuronNumbers], bounds: Bounds) -> Model:
        """The same program and weights with other numbers of its neurons."""
        out = replace(self, neurons=neurons, bounds=bounds)
        out.__dict__["_weighed"] = self._weighed
        return out

    def bare(self) -> Model:
        """The same without the weights, of which the shapes stay: for an engine that holds them packed."""
        projections = {
            name: replace(p, weight=np.broadcast_to(np.int8(0), p.weight.shape))
            for name, p in self.projections.items()
        }
        out = replace(self, projections=projections)
        out.__dict__["hash"] = self.hash
        return out


def _add(digest: Any, kind: Mapping[str, Any]) -> None:
    for name, numbers in sorted(kind.items()):
        for piece in _pieces(numbers):
            digest.update(piece)
        digest.update(name.encode())


def _pieces(numbers: Any) -> Iterator[bytes]:
    """Every field with its name, arrays with type and shape."""
    for f in fields(numbers):
        x = getattr(numbers, f.name)
        if isinstance(x, (InputGrid, Rescale)):
            yield from _pieces(x)
        elif isinstance(x, np.ndarray):
            yield f"{f.name} {x.dtype.str} {x.shape}".encode() + x.tobytes()
        else:
            yield f"{f.name} {x!r}".encode()

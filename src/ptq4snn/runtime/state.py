"""The state of a session, packed: what the neurons keep and what was summed over time so far.

A neuron has one row for each position of a sample, or, where each element has a channel of its own, a single
row for the whole sample. A row holds the fields Vq - zero in two's complement, the widest first, those of one
width in the order of the channels; each at its width, its lowest bit first, densely; the row is padded to a
whole byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptq4snn.bundle.format import IntegerArray, read_bundle, write_bundle
from ptq4snn.errors import BundleError
from ptq4snn.network.program import Delay, Neuron, TimeSum
from ptq4snn.runtime.parameters import Model

__all__ = [
    "MAX_SESSION", "MAX_STEPS", "Rest", "Rows", "State", "delay_field", "pack_rows", "rows_of", "unpack_rows",
]  # fmt: skip

MAX_STEPS = 2**16  # of one call, and at calibration
MAX_SESSION = 2**62  # steps of a session: its counter has 64 bits
MOST_BYTES = 2**33  # that reading a saved state may take: as much as a bundle by default

DELAY_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32)

ALIGNMENT = 64  # of every array in a block

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Packing of one neuron: `count` rows of `size` bytes a sample, each with the elements `order`."""

    count: int
    size: int
    order: Integers  # [fields] element of the row that is stored there
    widths: tuple[tuple[int, int], ...]  # width and number of fields, the widest first
    zero: Integers  # [fields] of the elements in their own order


def delay_field(low: int, high: int) -> tuple[int, int]:
    """The least width that holds low .. high, and the zero point that brings it there."""
    for bits in DELAY_WIDTHS:
        if high - low < 2**bits:
            return bits, low + 2 ** (bits - 1)
    raise BundleError("what goes round from step to step does not fit 32 bits")


def rows_of(model: Model, op: Neuron | Delay) -> Rows:
    if isinstance(op, Delay):
        return _delayed_row(model, op)
    numbers, value = model.neurons[op.name], model.program.values[op.output]
    bits, zero, count = numbers.bits, numbers.zero, value.positions
    if op.channel is not None:
        channel = op.channel.array()
        bits, zero, count = bits[channel], zero[channel], 1
    order = np.argsort(-bits, kind="stable")
    widths = tuple((int(w), int((bits == w).sum())) for w in sorted(set(bits.tolist()), reverse=True))
    return Rows(count, -(-int(bits.sum()) // 8), order, widths, zero)


def _delayed_row(model: Model, op: Delay) -> Rows:
    """One row for the sample, all fields alike."""
    value = model.program.values[op.output]
    count = value.positions * value.channels
    bits, zero = delay_field(*model.bounds.values[op.output])
    everything = np.arange(count)
    return Rows(1, -(-bits * count // 8), everything, ((bits, count),), np.full(count, zero, dtype=np.int64))


def pack_rows(rows: Rows, v: NDArray[Any]) -> Bytes:
    """States Vq [B, positions, channels] as [B, count, size]."""
    fields = (v.reshape(len(v), rows.count, -1).astype(np.int64) - rows.zero)[..., rows.order]
    parts, begin = [], 0
    for width, n in rows.widths:
        size = max(8, width) // 8
        part = np.ascontiguousarray(fields[..., begin : begin + n].astype(f"<i{size}")[..., None])
        bits = np.unpackbits(part.view(np.uint8), axis=-1, count=width, bitorder="little")
        parts.append(bits.reshape(*bits.shape[:2], -1))
        begin += n
    return np.packbits(np.concatenate(parts, axis=-1), axis=-1, bitorder="little")


def unpack_rows(rows: Rows, packed: Bytes) -> Integers:
    """Inverse of `pack_rows`: Vq [B, count, fields]."""
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    out = np.empty((*packed.shape[:2], len(rows.order)), dtype=np.int64)
    begin = at = 0
    for width, n in rows.widths:
        size = max(8, width) // 8
        part = bits[..., at : at + n * width].reshape(*packed.shape[:2], n, width)
        # a field of less than a byte: its bits go to the top, and come down with the sign
        low = np.zeros((*part.shape[:-1], 8 * size - width), dtype=np.uint8)
        whole = np.packbits(np.concatenate([low, part], axis=-1), axis=-1, bitorder="little")
        signed = whole.view(f"<i{size}")[..., 0] >> (8 * size - width)
        out[..., rows.order[begin : begin + n]] = signed
        begin, at = begin + n, at + n * width
    return out + rows.zero


class Rest:
    """Where the sequences of a model begin; every row of a neuron is alike."""

    def __init__(self, model: Model) -> None:
        self._hash = model.hash
        self._rows: dict[int, tuple[int, Bytes]] = {}  # of a neuron: how many a sample has, and one [size]
        self._sums: dict[int, tuple[int, int]] = {}
        for op in model.program.operations:
            if isinstance(op, Delay) or (isinstance(op, Neuron) and not op.once):
                rows = rows_of(model, op)
                at_rest = np.zeros((1, len(rows.order)), dtype=np.int64)
                self._rows[op.output] = (rows.count, pack_rows(replace(rows, count=1), at_rest)[0, 0])
            elif isinstance(op, TimeSum):
                value = model.program.values[op.output]
                self._sums[op.output] = (value.positions, value.channels)

    def state(self, batch: int, into: State | None = None) -> State:
        """A new one, or, in its memory, one that this has made for as many samples."""
        state = self._made(batch) if into is None or into.batch != batch else into
        assert state.memory is not None
        state.memory.fill(0)
        for v, (_, row) in self._rows.items():
            if row.any():
                state.rows[v][...] = row
        state.steps = 0
        return state

    def _made(self, batch: int) -> State:
        rows = {v: (batch, count, len(row)) for v, (count, row) in self._rows.items()}
        return State.laid_out(self._hash, batch, rows, {v: (batch, *s) for v, s in self._sums.items()})


@dataclass
class State:
    """Where `batch` sequences stand after `steps` steps; keys are the numbers of values."""

    model_hash: str  # of the model it belongs to
    batch: int
    steps: int
    rows: dict[int, Bytes] = field(default_factory=dict)  # of a neuron: [B, count, size]
    sums: dict[int, Integers] = field(default_factory=dict)  # of a sum over time: [B, positions, channels]
    memory: Bytes | None = field(default=None, repr=False, compare=False)  # of all, where it is one block
    buffers: Any = field(default=None, repr=False, compare=False)  # of the native kernels

    @classmethod
    def laid_out(
        cls, model_hash: str, batch: int, rows: Mapping[int, Shape], sums: Mapping[int, Shape]
    ) -> State:
        """One block for everything, which is copied at once; what is in it is not said."""
        sizes = [8 * prod(s) for s in sums.values()] + [prod(s) for s in rows.values()]
        starts = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        memory = np.empty(starts[-1], dtype=np.uint8)
        state = cls(model_hash, batch, 0, memory=memory)
        for (v, shape), at in zip(sums.items(), starts, strict=False):
            state.sums[v] = np.ndarray(shape, np.int64, memory, at)
        for (v, shape), at in zip(rows.items(), starts[len(sums) :], strict=False):
            state.rows[v] = np.ndarray(shape, np.uint8, memory, at)
        return state

    @classmethod
    def new(cls, model: Model, batch: int) -> State:
        """Everything at rest."""
        return Rest(model).state(batch)

    def copy(self, into: State | None = None) -> State:
        """The same in memory of its own, or in that of `into`, a state of the same session."""
        into = self.beside() if into is None else into
        alike = list(self.rows) == list(into.rows) and list(self.sums) == list(into.sums)
        if alike and self._is_whole() and into._is_whole():
            np.copyto(into.memory, self.memory)  # type: ignore[arg-type]
        else:
            for v, row in self.rows.items():
                np.copyto(into.rows[v], row)
            for v, total in self.sums.items():
                np.copyto(into.sums[v], total)
        into.steps = self.steps
        return into

    def beside(self) -> State:
        """Memory for another state of the same session; what is in it is not said."""
        rows, sums = ({v: a.shape for v, a in part.items()} for part in (self.rows, self.sums))
        return State.laid_out(self.model_hash, self.batch, rows, sums)

    def _is_whole(self) -> bool:
        """Whether the block holds every array: somebody may have put others in their places."""
        if self.memory is None:
            return False
        arrays: list[NDArray[Any]] = [*self.rows.values(), *self.sums.values()]
        return all(a.base is self.memory for a in arrays)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.rows.values()) + sum(a.nbytes for a in self.sums.values())

    def check(self, model: Model) -> None:
        """That it belongs to `model` and can go on there."""
        if self.model_hash != model.hash:
            raise BundleError("the state was saved by another model; give the one of this bundle")
        one = State.new(model, 1)  # of one sample: the batch of a stranger's state may be absurd
        fits = self.batch > 0 and 0 <= self.steps <= model.bounds.steps
        fits = fits and _shapes(self) == [(v, (self.batch, *shape[1:])) for v, shape in _shapes(one)]
        if not fits or not all(self._reachable(model, v) for v in self.sums):
            raise BundleError("the state does not fit its model; save it again")

    def _reachable(self, model: Model, v: int) -> bool:
        """Whether so many steps can have added up to these sums: bounds are for the most steps."""
        low, high = (-(-abs(b) * self.steps // model.bounds.steps) for b in model.bounds.values[v])
        return bool(((self.sums[v] >= -low) & (self.sums[v] <= high)).all())

    def save(self, path: str | Path) -> None:
        """Write the state all at once, as a bundle without a model."""
        arrays = {f"rows/{v}": IntegerArray(a.view(np.int8), 8) for v, a in self.rows.items()}
        for v, a in self.sums.items():  # an int64 is two int32
            halves = a.astype("<i8").view("<i4").reshape(*a.shape, 2)
            arrays[f"sums/{v}"] = IntegerArray(halves, 32)
        write_bundle(
            path, {"state": {"model": self.model_hash, "batch": self.batch, "steps": self.steps}}, arrays, {}
        )

    @classmethod
    def load(cls, path: str | Path, model: Model | None = None) -> State:
        """A saved state, checked against `model`; `Runtime.restore` does that as well."""
        bundle = read_bundle(path, MOST_BYTES)
        try:
            head = bundle.plan["state"]
            state = cls(str(head["model"]), _whole(head["batch"]), _whole(head["steps"]))
            for name, a in bundle.integers.items():
                kind, _, number = name.partition("/")
                if kind == "rows":
                    state.rows[int(number)] = a.values.astype(np.int8).view(np.uint8)
                elif kind == "sums":
                    halves = np.ascontiguousarray(a.values.astype("<i4"))
                    state.sums[int(number)] = halves.view("<i8")[..., 0].astype(np.int64)
        except (KeyError, TypeError, ValueError, IndexError) as why:
            raise BundleError(
                f"{path} holds no state of a session; save one with rt.state.save(path)"
            ) from why
        if model is not None:
            state.check(model)
        return state


def _whole(x: Any) -> int:
    if not isinstance(x, int) or isinstance(x, bool):
        raise TypeError("not a whole number")
    return x


def _shapes(state: State) -> list[tuple[int, tuple[int, ...]]]:
    rows = [(v, a.shape) for v, a in sorted(state.rows.items())]
    return rows + [(v, a.shape) for v, a in sorted(state.sums.items())]

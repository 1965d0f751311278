"""A native plan while it is written: values with their formats, operations, states, kept values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ptq4snn.network import program as ops
from ptq4snn.numerics.limits import INT32
from ptq4snn.runtime.native.layout import Format, Kind, NativeOp, NativeValue, format_of
from ptq4snn.runtime.parameters import Model
from ptq4snn.runtime.stepwise import Put, Take

__all__ = ["FAST_ROWS", "Draft"]

FAST_ROWS = {Format.U8, Format.S8, Format.I16, Format.I32}


class Draft:
    """`keep` are the numbers of values that can be asked for."""

    def __init__(self, model: Model, keep: frozenset[int]) -> None:
        self.model, self.keep = model, keep
        self.operations: list[NativeOp] = []
        self.states: list[int] = []  # value of each state
        self.kept: list[int] = []
        self.loop = -1  # the one that operations are added to
        self.later: list[NativeOp] = []  # for the end of the loop
        self.waiting: dict[int, NativeOp] = {}  # what its only reader will take along, by its value
        makers = {op.output: op for op in model.program.operations}
        self.values = [self._value(v, _origin(makers, v)) for v in range(len(model.program.values))]
        readers = Counter(v for op in model.program.operations for v in op.inputs)
        self._only = {v: op for op in model.program.operations for v in op.inputs if readers[v] == 1}

    def _value(self, v: int, op: ops.Operation | None) -> NativeValue:
        """The smallest format, but rows where kernels write rows; without an operation it is a potential."""
        value = self.model.program.values[v]
        rows = op is None or isinstance(op, (ops.Project, ops.Quantize))
        kind = format_of(*self.model.bounds.values[v], planes=not rows)
        if op is None and kind is not Format.I64:
            kind = Format.I32
        return NativeValue(value.positions, value.channels, value.time, kind)

    def add(self, op: NativeOp) -> None:
        op.loop = self.loop
        self.operations.append(op)
        for v in (op.output, op.second):
            if v in self.keep:
                keep = NativeOp(Kind.KEEP, name=op.name, sources=(v,), slot=len(self.kept))
                (self.operations if self.loop < 0 else self.later).append(keep)
                self.kept.append(v)

    def begin_loop(self, number: int) -> None:
        self.loop = number

    def end_loop(self, stores: list[NativeOp]) -> None:
        """`stores` keep what goes round for the next step."""
        for op in stores:
            self.add(op)
        self.loop = -1
        self.operations += self.later
        self.later = []

    def only_reader(self, v: int) -> ops.Operation | None:
        """The operation that alone reads v, if nobody else can ask for it."""
        return None if v in self.keep else self._only.get(v)

    def temporary(self, like: int, kind: Format, time: bool) -> int:
        self.values.append(replace(self.values[like], format=kind, time=time))
        return len(self.values) - 1

    def state_of(self, value: int) -> int:
        self.states.append(value)
        return len(self.states) - 1

    def wide(self, op: ops.Operation, *numbers: int | None) -> bool:
        """Whether something that the operation computes with does not fit int32."""
        ends = [e for v in (*op.inputs, op.output) for e in self.model.bounds.values[v]]
        return any(not -INT32 <= e < INT32 for e in (*ends, *(n for n in numbers if n is not None)))

    def used(self) -> list[NativeValue]:
        """The values that some operation makes: others were taken along. Operations get their new numbers."""
        made = sorted({v for op in self.operations for v in (op.output, op.second) if v >= 0})
        number = {v: i for i, v in enumerate(made)} | {-1: -1}
        for op in self.operations:
            op.output, op.second = number[op.output], number[op.second]
            op.sources = tuple(number[v] for v in op.sources)
        return [self.values[v] for v in made]


def _origin(makers: dict[int, ops.Operation], v: int) -> ops.Operation | None:
    """The operation that made the numbers of a value: a step of it, or its steps, have the same format."""
    op = makers.get(v)
    while isinstance(op, (Take, Put)):
        op = makers.get(op.inputs[0])
    return op

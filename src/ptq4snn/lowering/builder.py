"""Collects values and operations; the same operation on the same values is made once.

So a loop over time steps in Python, which does everything T times, gives one operation of each kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ptq4snn.lowering.numbering import Split, blanks, in_own_order, number, size_of, split
from ptq4snn.lowering.tracked import INPUT, Refused, Tracked, worth
from ptq4snn.network.index import compact
from ptq4snn.network.program import (
    Affine,
    Combine,
    Gather,
    Neuron,
    Operation,
    Project,
    Quantize,
    TimeSum,
    Value,
)

__all__ = ["Builder"]

RECENT = 3
NAMED = (Affine, Neuron, Project, Quantize)


class Builder:
    def __init__(self, steps: int, batch: int, frame: Value) -> None:
        self.steps, self.batch = steps, batch
        self.frame = frame  # the input: positions 1, channels all numbers of a sample at one step
        self.values: list[Value] = []
        self.summed: list[bool] = []  # made from a sum over time
        self.operations: list[Operation] = []
        self.made: dict[Any, int] = {}
        self.maker: dict[int, Operation] = {}
        self.recent: list[tuple[Tensor, int, Split]] = []  # rules ask several times
        self.scope = ""

    def of(self, value: int) -> Value:
        return self.frame if value == INPUT else self.values[value]

    def elements(self, value: int) -> int:
        v = self.of(value)
        return v.positions * v.channels

    def is_summed(self, value: int) -> bool:
        return value != INPUT and self.summed[value]

    def split(self, x: Tracked) -> Split:
        for numbers, value, found in self.recent:
            if numbers is x.numbers and value == x.value:
                return found
        found = split(x.numbers, self.elements(x.value))
        self.recent = [(x.numbers, x.value, found), *self.recent[: RECENT - 1]]
        return found

    def new_value(self, value: Value, summed: bool) -> int:
        self.values.append(value)
        self.summed.append(summed)
        return len(self.values) - 1

    def add(self, kind: type[Operation], inputs: tuple[int, ...], shape: tuple[int, int],
            name: str | None = None, time: bool | None = None, **fields: Any) -> int:  # fmt: skip
        """The value [positions, channels] that an operation makes; with time if an input has it."""
        key = (kind, inputs, shape, name if kind in NAMED else None, time, tuple(sorted(fields.items())))
        if key in self.made:
            return self.made[key]
        if time is None:
            time = any(self.of(i).time for i in inputs)
        summed = kind is TimeSum or any(self.is_summed(i) for i in inputs)
        if time and summed and kind is not TimeSum:
            raise Refused("joins a sum over time with single time steps")
        value = self.new_value(Value(*shape, time), summed)
        made = kind(output=value, inputs=inputs, name=self.scope if name is None else name, **fields)
        self.operations.append(made)
        self.maker[value] = made
        self.made[key] = value
        return value

    def gather(self, value: int, index: Tensor, shape: tuple[int, int], name: str | None = None) -> int:
        """Elements `index` of a value as another one; the value itself where that moves nothing. Of the
        input, what the first projection `name` quantizes it to."""
        if value == INPUT:
            time, found = self.frame.time, compact(index.numpy())
            return self.add(Quantize, (), shape, name, time, index=found)
        v = self.of(value)
        if (v.positions, v.channels) == shape and torch.equal(index, torch.arange(len(index))):
            return value
        inputs: tuple[int, ...] = (value,)
        before = self.maker.get(value)
        if isinstance(before, Gather) and before.width == 1:  # moved twice: once is enough
            index = _behind(torch.from_numpy(before.index.array()), index)
            inputs = before.inputs
        return self.add(Gather, inputs, shape, how="sum", width=1, index=compact(index.numpy()))

    def scaled(self, value: int, coefficient: int) -> int:
        if coefficient == 1:
            return value
        v = self.of(value)
        return self.add(Combine, (value,), (v.positions, v.channels), coefficients=(coefficient,), constant=0)

    def time_sum(self, value: int) -> int:
        v = self.of(value)
        return self.add(TimeSum, (value,), (v.positions, v.channels), time=False)

    def arrange(self, x: Tracked, axes: tuple[tuple[int, ...], tuple[int, ...]] | None = None) -> Tracked:
        """x in storage of its own: positions over the first `axes`, channels over the second."""
        s = self.split(x)
        positions, channels = axes or in_own_order(s, self.of(x.value).channels)
        if any(s.varies(d) for d in (*positions, *channels)) or not s.separate:
            raise Refused("mixes time steps and samples with other elements on one axis")
        order = (*positions, *channels)
        others = [d for d in range(len(s.shape)) if d not in order]
        sizes = [s.shape[d] if d in order else 1 for d in range(len(s.shape))]
        wanted = s.element.expand(sizes).permute(*others, *order).reshape(-1)
        shape = size_of(s.shape, positions), size_of(s.shape, channels)
        value = self.gather(x.value, wanted, shape)
        place = torch.arange(len(wanted)).reshape([1] * len(others) + [s.shape[d] for d in order])
        back = place.permute(*[[*others, *order].index(d) for d in range(len(s.shape))])
        numbers = number(s.sample, back, len(wanted)).expand(s.shape)
        return replace(x, value=value, numbers=numbers)

    def whole(self, x: Tracked) -> Tracked:
        """x with every element stored, also the zeros."""
        return self.arrange(x) if blanks(x.numbers) else x

    def positive(self, x: Tracked) -> Tracked:
        """x counted upwards: with a factor above zero."""
        if x.factor > 0:
            return x
        factor, scalings = -x.factor, worth(-x.factor, x.per_steps)
        return replace(x, value=self.scaled(x.value, -1), factor=factor, scalings=scalings, binary=False)


def _behind(first: Tensor, second: Tensor) -> Tensor:
    """The index of two moves, one after the other; -1 stays -1."""
    return torch.where(second < 0, second, first[second.clamp(min=0)])

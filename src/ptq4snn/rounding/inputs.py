"""What projections read, call by call, handed on whole: also where memory has room for portions of a batch.

Then the inputs of each portion are held back, spikes as bytes, and put together once the batch has run. Where
the samples lie in an input ([B, ...], [T, B, ...], [T B, ...]) is told by those of one sample and of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.folding import Folded
from ptq4snn.errors import OutOfMemory
from ptq4snn.memory import Portion
from ptq4snn.rounding.network import Enough, collected, forward

__all__ = ["Inputs"]

Calls = dict[str, list[Tensor]]  # inputs of projections by name, in the order of their calls


@dataclass
class Inputs:
    """Watches projections. `once`: how often each is called in a pass, which ends behind the last call."""

    folded: Folded
    once: Mapping[str, int]
    update: Callable[[str, Tensor], None]
    left: dict[str, int] = field(default_factory=dict)
    held: Calls | None = None  # None: handed on at once

    @contextmanager
    def watched(self) -> Iterator[None]:
        def note(name: str) -> Any:
            def hook(_m: nn.Module, args: Any) -> None:
                if self.held is None:
                    self.update(name, args[0])
                else:
                    self.held[name].append(_packed(args[0].detach()))
                self.left[name] -= 1
                if not any(self.left.values()):
                    raise Enough

            return hook

        handles = [self.folded.projection(n).register_forward_pre_hook(note(n)) for n in self.once]
        with collected(handles, self.folded.model):
            yield

    def run(self, portion: Portion) -> Calls:
        """A pass; what is held of a portion, nothing of a whole batch."""
        self.held = None if portion.is_whole else {n: [] for n in self.once}
        self.left.update(self.once)
        forward(self.folded.model, portion.x)
        return self.held or {}

    def forget(self) -> None:
        self.held = None

    def take(self, parts: Sequence[Calls], x: Tensor, batch_axis: int) -> None:
        """Hand on what all portions of the batch x held, as if it had run whole."""
        single = [x.narrow(batch_axis, i, 1).contiguous() for i in (0, 1)]
        first, second, both = (self._inputs(few) for few in (*single, torch.cat(single, batch_axis)))
        self.held = None
        for name in self.once:
            for i, calls in enumerate(zip(*(part[name] for part in parts), strict=True)):
                place = Place.of(name, first[name][i], second[name][i], both[name][i])
                self.update(name, place.joined(calls).to(self.folded.weight(name).dtype))

    def _inputs(self, few: Tensor) -> Calls:
        return self.run(Portion(few, 0, few.shape[0], -1))


@dataclass(frozen=True)
class Place:
    """Samples lie along `axis`, `rows` for each; `apart`: the first rows of all samples come first, [T B]."""

    axis: int
    rows: int
    apart: bool

    @classmethod
    def of(cls, name: str, a: Tensor, b: Tensor, both: Tensor) -> Place:
        """Told by the inputs of two samples, and of both together."""
        odd = [d for d, (n, m) in enumerate(zip(a.shape, both.shape, strict=True)) if n != m]
        if len(odd) == 1 and both.shape[odd[0]] == 2 * a.shape[odd[0]]:
            axis, rows = odd[0], a.shape[odd[0]]
            found = [cls(axis, rows, apart) for apart in (True, False)]
            fits = [place for place in found if torch.equal(place.joined([a, b]), both)]
            if fits and (len(fits) == 1 or rows == 1):
                return fits[0]
        raise OutOfMemory(
            f"there is not enough memory for a whole micro-batch (second moments), and where its samples lie "
            f"in the input of '{name}' cannot be told: set micro_batch in the recipe to a smaller number"
        )

    def joined(self, calls: Sequence[Tensor]) -> Tensor:
        """Inputs of portions as one."""
        if not self.apart:
            return torch.cat(list(calls), self.axis)
        rows = [x.unflatten(self.axis, (self.rows, -1)) for x in calls]
        return torch.cat(rows, self.axis + 1).flatten(self.axis, self.axis + 1)


def _packed(x: Tensor) -> Tensor:
    """Spikes and their counts as bytes."""
    short = x.to(torch.uint8)
    return short if torch.equal(short.to(x.dtype), x) else x

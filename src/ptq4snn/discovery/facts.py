"""What is known of a tensor of the recorded forward pass: where its numbers come from and which integers they are.

    Data      the model's input, or something computed from it alone
    Constant  a parameter, a buffer, a literal
    Count     factor * integer in [lo, hi], made of spikes only
    Current   factor * a sum of projection outputs, one sheet for each summand
    Membrane  a neuron's state, read out
    Opaque    anything else: harmless at the output, an error in front of a neuron or a projection
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch import Tensor

__all__ = ["TIME", "Constant", "Count", "Current", "Data", "Fact", "Membrane", "Norm", "Opaque", "Sheet"]


# `ids` tensors number every element by its channel and its time step: channel + TIME * t
TIME = float(2**32)


@dataclass(frozen=True)
class Constant:
    value: float | None = None


@dataclass(frozen=True)
class Data:
    pass


@dataclass(frozen=True)
class Count:
    factor: float
    lo: float
    hi: float
    sources: frozenset[str]
    ids: Tensor | None = field(default=None, compare=False)  # like the tensor, of the source neuron
    over_time: bool = False  # summed over time steps: the factor holds 1/T

    def scaled(self, c: float) -> Count:
        """c * x; a negative c turns the bounds round."""
        lo, hi = (self.lo, self.hi) if c >= 0 else (-self.hi, -self.lo)
        return replace(self, factor=self.factor * abs(c), lo=lo, hi=hi)


class Norm(NamedTuple):
    """A BatchNorm on the way: the weight of a constant there, and whether a max-pool came before it."""

    name: str
    constant: float
    after_max: bool


@dataclass(frozen=True)
class Sheet:
    """One summand. `ids` has the tensor's shape and says which projection channel each element is of."""

    ids: Tensor = field(compare=False)
    projections: frozenset[str]
    norms: tuple[Norm, ...] = ()
    ops: tuple[str, ...] = ()
    constant: float = 1.0  # what a projection that outputs 1 everywhere contributes here


@dataclass(frozen=True)
class Current:
    sheets: tuple[Sheet, ...]
    factor: float = 1.0  # carrier = factor * integer
    window: float = 1.0  # how many accumulators at most are added into one element
    over_time: bool = False

    @property
    def projections(self) -> frozenset[str]:
        return frozenset().union(*(s.projections for s in self.sheets))


@dataclass(frozen=True)
class Membrane:
    neuron: str


@dataclass(frozen=True)
class Opaque:
    reason: str
    projections: frozenset[str] = frozenset()
    membranes: frozenset[str] = frozenset()


Fact = Constant | Data | Count | Current | Membrane | Opaque

"""What is known of a recorded tensor: where its numbers come from and which integers they are.

Data      the model's input or what an excluded part gives, or something computed from these alone
Constant  a parameter, a buffer, a literal
Count     factor * integer in [lo, hi], made of spikes only
Current   factor * a sum of projection outputs, one sheet for each summand; or what a synapse made of it
Membrane  a neuron's state, read out
Finished  any of these behind a softmax or an argmax at the end of forward
Opaque    anything else: harmless at the output, an error in front of a neuron or a projection
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

__all__ = [
    "RELU",
    "TIME",
    "Constant",
    "Count",
    "Current",
    "Data",
    "Fact",
    "Finished",
    "Membrane",
    "NormCall",
    "Opaque",
    "Sheet",
    "projections_of",
    "sheets_of",
]


# `ids` tensors number every element by its channel and its time step: channel + TIME * t
TIME = float(2**32)
RELU = "relu"  # among the operations of a sheet: it is not negative


@dataclass(frozen=True)
class Constant:
    value: float | None = None  # where all elements are equal
    learned: str | None = None  # the parameter it is made of
    drawn: bool = False  # by a random generator: another one in every call


@dataclass(frozen=True)
class Data:
    floating: bool = False  # it comes out of an excluded part, not from the model's input alone


@dataclass(frozen=True)
class Count:
    factor: float
    lo: float
    hi: float
    sources: frozenset[str]
    ids: Tensor | None = field(default=None, compare=False)  # like the tensor, of the source neuron
    over_time: bool = False  # a mean over time steps: the factor holds 1/T

    def scaled(self, c: float) -> Count:
        """c * x; a negative c turns the bounds round."""
        lo, hi = (self.lo, self.hi) if c >= 0 else (-self.hi, -self.lo)
        return replace(self, factor=self.factor * abs(c), lo=lo, hi=hi)


@dataclass(frozen=True)
class NormCall:
    """A BatchNorm on the way of a current."""

    name: str
    at: int  # the value it made: one BatchNorm may be called twice
    constant: float  # what a projection that outputs 1 everywhere has become there
    after_max: bool  # a max-pool came before it
    channels: tuple[tuple[int, int], ...]  # (number of the projection channel, channel of the BatchNorm)
    border: int = 0  # pixels it adds around its output


@dataclass(frozen=True)
class Sheet:
    """One summand. `ids` has the tensor's shape and says which projection channel each element is of."""

    ids: Tensor = field(compare=False)
    projections: frozenset[str]
    norms: tuple[NormCall, ...] = ()
    ops: tuple[str, ...] = ()
    constant: float = 1.0  # what a projection that outputs 1 everywhere contributes here
    uneven: str | None = None  # the operation behind which that is not the same everywhere


@dataclass(frozen=True)
class Current:
    sheets: tuple[Sheet, ...]
    factor: float = 1.0  # carrier = factor * integer
    window: float = 1.0  # how many accumulators at most are added into one element
    span: float = (
        1.0  # largest |carrier| where projections emit at most 1 and sums are clipped there (streams)
    )
    over_time: bool = False
    through: str | None = None  # the neuron that emits it, where it is a synaptic current

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


@dataclass(frozen=True)
class Finished:
    """What the outputs are behind `then`, (what, axis from the end) in turn."""

    fact: Constant | Data | Count | Current | Membrane | Opaque
    then: tuple[tuple[str, int], ...]


Fact = Constant | Data | Count | Current | Membrane | Opaque | Finished


def sheets_of(fact: Fact) -> tuple[Sheet, ...]:
    """Those of a current that no neuron handed on."""
    return fact.sheets if isinstance(fact, Current) and fact.through is None else ()


def projections_of(fact: Fact) -> frozenset[str]:
    """Those that a current comes from without a neuron between."""
    return fact.projections if isinstance(fact, Current) and fact.through is None else frozenset()

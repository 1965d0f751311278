"""What an adapter tells about a framework's neuron: its canonical form and its calling habits.

Canonical form, in the shifted variable V - v_rest (shapes: one sample's state, or 0-dim):

    H[t] = leak * V[t-1] + gain * x[t]
    S[t] = H[t] >= theta   (or >)
    V[t] = H (1 - S)  (hard)     H - rho S  (soft)     H  (none),  and no less than `floor` where there is one

What may fire more than once in a step (`most` above 1) counts: S[t] = floor(H / theta), no less than 0 and no
more than `most`; a hard reset is one wherever S is not 0.

A framework's neuron with more states or with weights of its own is several of these, one behind the other:
a *compound* (frameworks/compound.py). A synaptic current is the canonical neuron that never fires and hands
on H[t], or the V[t-1] that it carried into the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from ptq4snn.frameworks.core import NeuronCore

__all__ = ["COUNTS", "Adapter", "Comparator", "Emits", "NeuronSpec", "Reset", "Shell", "Surrogate"]

Comparator = Literal[">=", ">"]
Reset = Literal["hard", "soft", "none"]
Emits = Literal["spikes", "current", "carried"]  # S[t]; H[t]; V[t-1]
COUNTS = 255  # the most spikes of a step that integers hold: a byte
Surrogate = Callable[[Tensor], Tensor]  # u = H - theta  ->  spikes, with the model's surrogate gradient


@dataclass(frozen=True)
class NeuronSpec:
    """A neuron in canonical form. Tensors are float64, 0-dim or broadcastable to one sample's state.

    What emits a current never fires; its theta is the size of a current that matters to what it feeds.
    """

    leak: Tensor
    gain: Tensor
    theta: Tensor
    rho: Tensor
    comparator: Comparator
    reset: Reset
    surrogate: Surrogate
    v_rest: float = 0.0
    emits: Emits = "spikes"
    floor: Tensor | None = None  # at most 0
    most: int | None = 1  # spikes of a step; None: as many thresholds as fit, no limit is known yet

    @property
    def limit(self) -> int:
        """The most spikes of a step in integers."""
        return COUNTS if self.most is None else min(self.most, COUNTS)


class Shell(nn.Module):
    """A neuron that keeps its framework's calling habits (arguments, results, state, reset) around a core.

    The core computes; it is a float core while the model is observed and an integer core afterwards.
    """

    def __init__(self, core: NeuronCore) -> None:
        super().__init__()
        self.core = core

    def reset(self) -> None:
        """Forget the state between two sequences. Shells that keep none have nothing to do."""


class Adapter(Protocol):
    """One per framework. Recognises by class name and attributes: the framework need not be importable."""

    name: str

    def matches(self, module: nn.Module) -> bool:
        """True for every neuron of the framework, supported or not."""
        ...

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        """Canonical form; raises UnsupportedNeuron naming `path`, the class and what to do."""
        ...

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        """Time steps that one call with `x[T, B, ...]` runs, or None if a call is one step of `x[B, ...]`."""
        ...

    def reset(self, module: nn.Module) -> None:
        """Forget the state that the original module keeps between calls."""
        ...

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        """The replacement of `module`, with its habits, computing with `core`."""
        ...

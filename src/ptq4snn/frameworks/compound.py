"""Neurons that are made of several canonical ones, and the parts that these are made of.

    synaptic current   x -> 'synapse' (leaky, never fires) -> 'membrane' (fires)
    recurrence         x + 'recurrent'(spikes of the step before) -> 'membrane'

An adapter's `parts` builds such a compound from a framework's neuron. It stands in that neuron's place, with
its arguments and results, and its own code is followed like the user's: the parts are neurons and projections
like any other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks.adapter import NeuronSpec, Shell
from ptq4snn.frameworks.core import FloatCore, NeuronCore
from ptq4snn.frameworks.foreign import StatefulShell

__all__ = [
    "Before",
    "Compound",
    "CompoundAdapter",
    "OneToOne",
    "Stage",
    "StageAdapter",
    "derived",
    "plain_linear",
]


def _times(x: Tensor, factor: Tensor) -> Tensor:
    return x * (float(factor) if factor.dim() == 0 else factor.to(x))


class _Steps:
    """One time step a call: forward(x[B, ...]) -> (what it emits, what a user reads of its state); `whole`: a
    call is a sequence [T, B, ...] from rest."""

    core: NeuronCore
    reads_potential: bool
    whole: bool
    factor: Tensor | None
    _v: Tensor | None
    _t: int

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.whole:
            return self._step(x)
        self._v, self._t = None, 0
        steps = [self._step(x_t) for x_t in x.unbind(0)]
        return torch.stack([out for out, _ in steps]), torch.stack([read for _, read in steps])

    def _step(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = self._v if self._v is None or self._v.dim() else self._v.expand_as(x)  # one number for all
        before = kept if kept is not None and kept.shape == x.shape else None
        t = self._t if before is not None else 0
        s, v, h = self.core.step(x, before, t)
        self._v, self._t = v, t + 1
        read = self.core.potential(h) if self.reads_potential else self.core.state_value(v)
        spec: NeuronSpec = self.core.spec  # type: ignore[assignment]
        out = s if spec.emits == "spikes" else self.core.emitted(h, before)
        return out, read + 0 if self.factor is None else _times(read, self.factor)  # a tensor of its own

    def begin(self, mem: Tensor) -> None:
        """Go on from a state as a user reads it."""
        if self.factor is not None:
            mem = _times(mem, torch.where(self.factor == 0, 0.0, 1 / self.factor))  # 0: nothing is kept
        if self.reads_potential:
            h = self.core.from_potential(mem)
            self._v = self.core.settle(h, self.core.fire(h), 0)
        else:
            self._v = self.core.from_state_value(mem)
        self._t = 0


class Stage(_Steps, nn.Module):
    """One canonical neuron of a compound, in float.

    `reads_potential`: what a user reads of it is H, before the reset; else V. `factor`: so many times it.
    """

    def __init__(
        self,
        spec: NeuronSpec,
        reads_potential: bool = True,
        whole: bool = False,
        factor: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.spec, self.reads_potential, self.whole, self.factor = spec, reads_potential, whole, factor
        self.core = FloatCore(spec)
        self.reset()

    def reset(self) -> None:
        self._v, self._t = None, 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.run(x)


class StageShell(_Steps, StatefulShell):
    """The same around the core that it is given."""

    _carried = ("_v",)

    def __init__(self, core: NeuronCore, stage: Stage) -> None:
        super().__init__(core)
        self.reads_potential, self.whole, self.factor = stage.reads_potential, stage.whole, stage.factor
        self._keeps_potential = stage.reads_potential and stage.factor is None

    def reset(self) -> None:
        self._v, self._t = None, 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.run(x)


@cache
def derived(kind: Any, base: Any) -> Any:
    """`kind` that is also a `base` of the framework that the model is of, which looks for its own classes."""
    return type(kind.__name__, (kind, base), {})


class StageAdapter:
    name = "stage"

    def matches(self, module: nn.Module) -> bool:
        return isinstance(module, Stage)

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        assert isinstance(module, Stage)
        return module.spec

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        assert isinstance(module, Stage)
        return x.shape[0] if module.whole else None

    def reset(self, module: nn.Module) -> None:
        assert isinstance(module, Stage)
        module.reset()

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        assert isinstance(module, Stage)
        kind = type(module)
        base = None if kind is Stage else kind.__bases__[1]  # of `derived`
        return (StageShell if base is None else derived(StageShell, base))(core, module)


class Before(nn.Module):
    """Spikes of the step before, zeros at first: forward(them) -> them. It marks where time goes round."""

    def forward(self, spikes: Tensor) -> Tensor:
        return spikes + 0


class OneToOne(nn.Module):
    """A weight for each feature: a convolution in as many groups as there are features [B, C, ...]."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight.detach().reshape(-1)
        self.each: nn.Module | None = None
        if len(self.weight) > 1:
            self.grow(len(self.weight))

    def grow(self, channels: int) -> None:
        """One weight for all becomes one for each, when their number is known."""
        each = nn.utils.skip_init(nn.Conv1d, channels, channels, 1, groups=channels, bias=False)
        each.weight = nn.Parameter(
            self.weight.expand(channels).reshape(-1, 1, 1).clone(), requires_grad=False
        )
        self.each = each

    def forward(self, x: Tensor) -> Tensor:
        if self.each is None:
            self.weight = self.weight.to(x)
            self.grow(x.shape[1])
        assert self.each is not None
        y: Tensor = self.each(x.reshape(*x.shape[:2], -1))
        return y.reshape(x.shape)


class Compound(nn.Module):
    """Base of what stands in a framework's neuron's place. It keeps what goes round between two steps."""

    def reset(self) -> None:
        """Forget it. The parts are reset on their own."""
        self.spikes: Tensor | None = None

    def rest(self) -> None:
        """Forget it, and the states of all parts."""
        self.reset()
        for part in self.modules():
            if isinstance(part, (Stage, Shell)):
                part.reset()

    def last_spikes(self, like: Tensor) -> Tensor:
        """Spikes of the step before, zeros at first."""
        kept: Any = self.spikes
        return kept if kept is not None and kept.shape == like.shape else torch.zeros_like(like)


class CompoundAdapter:
    """Base of the adapter of a framework whose supported neurons are all made of parts: `spec` is asked only
    for what is left, and refuses it by name. A subclass has `matches`, `parts` and `refused`."""

    def refused(self, module: nn.Module, path: str) -> UnsupportedNeuron:
        raise NotImplementedError

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        raise self.refused(module, path)

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        return None

    def reset(self, module: nn.Module) -> None:
        return None

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        raise self.refused(module, "")


def plain_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with a weight [out, in] that is there already."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, *weight.shape[::-1], bias=bias is not None)
    made.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return made

"""A unit run alone, inside the user's own forward: glue code (adds, products, pools) stays the model's own.

Projections and neurons outside return what was recorded where they reach the unit. Elsewhere they return
tensors without values (rounding/shape_only.py), or zeros in a model whose code looks at values. Neurons
inside run with the model's surrogate gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ptq4snn.calibration.packed import PackedBatch
from ptq4snn.discovery.folding import Folded
from ptq4snn.frameworks import Shell
from ptq4snn.frameworks.core import FloatCore, NeuronCore
from ptq4snn.modules.carrier import tracked
from ptq4snn.modules.readout import same_draws
from ptq4snn.numerics.gradients import safe_gradients
from ptq4snn.rounding.boundary import Boundary
from ptq4snn.rounding.network import Enough
from ptq4snn.rounding.recording import Bits, Countdown, Recording, Trace
from ptq4snn.rounding.shape_only import ShapeOnly, shape_only

__all__ = ["Alone", "Currents", "SurrogateCore"]


class Currents:
    """What is compared, at the places where a unit's error shows: currents that drive neurons, step by step,
    and whether a sequence begins there; outputs of projections call by call, and so what a neuron fires or a
    module outside reads."""

    def __init__(self) -> None:
        self.neurons: dict[str, list[tuple[Tensor, bool]]] = {}
        self.outputs: dict[str, list[Tensor]] = {}

    def without_values(self) -> bool:
        inputs = [x for steps in self.neurons.values() for x, _ in steps]
        return any(type(x) is ShapeOnly for x in (*inputs, *(y for c in self.outputs.values() for y in c)))


class PlayedCore(NeuronCore):
    """Returns recorded spikes, or nothing; what drives it goes to the unit that listens."""

    def __init__(self, name: str, unit: Alone) -> None:
        super().__init__()
        self.name, self.unit, self.spec = name, unit, unit.folded.specs[name]
        self.played: Iterator[Bits] | None = None

    def step(self, x: Tensor, v: Tensor | None, t: int) -> tuple[Tensor, Tensor, Tensor]:
        self.unit.add_input(self.name, x, v is None)
        nothing = self.unit.nothing(x.shape)
        spikes = next(self.played).unpack(self.unit.like) if self.played is not None else nothing
        return spikes, nothing, nothing

    def run(self, x: Tensor, v: Tensor | None, t: int = 0) -> tuple[Tensor, Tensor | None]:
        if self.played is None and type(x) is ShapeOnly:
            return self.unit.nothing(x.shape), None
        return super().run(x, v, t)

    def potential(self, h: Tensor) -> Tensor:
        return h

    def from_potential(self, mem: Tensor) -> Tensor:
        return mem

    def state_value(self, v: Tensor) -> Tensor:
        return v

    def from_state_value(self, mem: Tensor) -> Tensor:
        return mem

    def emitted(self, h: Tensor, v: Tensor | None) -> Tensor:
        return h


class SurrogateCore(FloatCore):
    """The float neuron, through which gradients come back; the reset is not differentiated."""

    def fire(self, h: Tensor) -> Tensor:
        if not tracked(h):
            return super().fire(h)
        soft = self.spec.surrogate(h - self._value(self.spec.theta, h)).to(h.dtype)
        if self.spec.most == 1:  # adapters have checked that its value is the step function
            return soft
        return super().fire(h.detach()) + (soft - soft.detach())

    def settle(self, h: Tensor, s: Tensor, t: int) -> Tensor:
        return super().settle(h, s.detach(), t)


class Alone:
    """Runs the unit of a boundary in `folded`'s model with given weights and recorded surroundings."""

    def __init__(self, folded: Folded, boundary: Boundary, traced: Trace) -> None:
        self.folded, self.boundary, self.traced = folded, boundary, traced
        self.like = folded.weight(boundary.unit[0])
        self.real = False  # zeros instead of voids
        self.currents, self.left = Currents(), Countdown(boundary, traced)
        self.given: dict[str, Iterator[Any]] = {}
        self.cores: dict[str, PlayedCore] = {}
        modules = {n: folded.model.get_submodule(n) for n in folded.discovery.neurons}
        self.shells = {n: m for n, m in modules.items() if isinstance(m, Shell)}

    @contextmanager
    def cut_out(self) -> Iterator[None]:
        """Stubs are in place of everything outside, until the end."""
        folded, unit = self.folded, self.boundary.unit
        before = {n: shell.core for n, shell in self.shells.items()}
        outside = {n: folded.projection(n) for n in folded.discovery.projections if n not in unit}
        forwards = {n: {k: v for k, v in vars(m).items() if k == "forward"} for n, m in outside.items()}
        handles = [folded.projection(n).register_forward_hook(self._note(n)) for n in self.boundary.outputs]
        try:
            for name, shell in self.shells.items():
                shell.core = self._core(name)
            for name, module in outside.items():
                module.forward = self._stub(name)
            yield
        finally:
            for name, core in before.items():
                self.shells[name].core = core
            for name, module in outside.items():
                vars(module).pop("forward", None)
                vars(module).update(forwards[name])
            for handle in handles:
                handle.remove()
            self.reset()

    def reset(self) -> None:
        for shell in self.shells.values():
            shell.reset()

    def nothing(self, shape: torch.Size) -> Tensor:
        """What is not read by the unit."""
        return self.like.new_zeros(shape) if self.real else shape_only(shape, self.like.dtype)

    def run(self, x: PackedBatch, weights: Mapping[str, Tensor], recorded: Recording) -> Currents:
        """One forward pass from fresh states, until the unit's last output."""
        if not self.real:
            with suppress(Exception):  # whatever the model's code does with a tensor that has no values
                data = x.unpack() if self.boundary.data else shape_only(x.content.shape, x.dtype)
                currents = self._run(data, weights, recorded)
                if not (currents.without_values() or any(self.left.left.values())):
                    return currents
            self.real = True
        return self._run(x.unpack(), weights, recorded)

    def _run(self, x: Tensor, weights: Mapping[str, Tensor], recorded: Recording) -> Currents:
        self.currents, self.left = Currents(), Countdown(self.boundary, self.traced)
        self.given = {n: iter(shapes) for n, shapes in self.traced.shapes.items()}
        self.given |= {n: iter(outputs) for n, outputs in recorded.currents.items()}
        for name, core in self.cores.items():
            core.played = iter(recorded.spikes[name]) if name in recorded.spikes else None
        self.reset()
        with same_draws(), safe_gradients(), suppress(Enough):
            functional_call(self.folded.model, {f"{n}.weight": w for n, w in weights.items()}, (x,))
        return self.currents

    def add_input(self, neuron: str, x: Tensor, begins: bool) -> None:
        if neuron in self.boundary.readers:
            self.add_output(neuron, x)
        elif neuron in self.left.left:
            self.currents.neurons.setdefault(neuron, []).append((x, begins))
            self.left.tick(neuron)

    def add_output(self, name: str, y: Tensor) -> None:
        self.currents.outputs.setdefault(name, []).append(y)
        self.left.tick(name)

    def _note(self, name: str) -> Any:
        def hook(_m: nn.Module, _args: Any, out: Tensor) -> None:
            self.add_output(name, out)

        return hook

    def _core(self, name: str) -> NeuronCore:
        if name in self.boundary.inner:
            core = SurrogateCore(self.folded.specs[name])
            if name in self.boundary.fired:
                core.probe = lambda _x, _h, s, _v, _t: self.add_output(name, s)
            return core
        self.cores[name] = PlayedCore(name, self)
        return self.cores[name]

    def _stub(self, name: str) -> Any:
        def forward(x: Tensor, *_args: Any) -> Tensor:
            if name in self.boundary.readers:
                self.add_output(name, x)
            given = next(self.given[name])
            return given if isinstance(given, Tensor) else self.nothing(given)

        return forward

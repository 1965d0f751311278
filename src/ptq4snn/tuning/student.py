"""The quantized model with numbers behind its integers that gradients can move.

    Wq      = round(u), u clipped              u = Wq + clip(W / s - Wq, -LEAN, LEAN) to begin with
    bq      = round(b0 + |Wq_c| 2^F b)         |Wq_c|: the length of the row, b = 0 to begin with
    theta_q = round(theta0 (1 + t))            t = 0 to begin with

Forward it is the quantized model to the last bit, states, streams and saturation included; backward, rounding
is left out and neurons have their model's surrogate. Scales and exponents stay. A scale s_w,c needs no number
of its own: counted in its steps, bias and threshold are free.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ptq4snn.assemble import Assembly
from ptq4snn.frameworks import Shell
from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.modules.carrier import Clock, round_through
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import NeuronPlan, Plan
from ptq4snn.numerics.grid import numbered, on_levels, signed_range

__all__ = ["Student"]

LEAN = 0.35  # of a step that a number begins on the side of the float weight
EDGE = 0.49  # beyond the last integer


class FreeCore(IntegerCore):
    """An integer neuron whose threshold is a tensor that can be put in another's place."""

    def __init__(self, plan: NeuronPlan, spec: NeuronSpec, clock: Clock, steps: int) -> None:
        super().__init__(plan, spec, clock, steps)
        theta = torch.tensor(plan.theta, dtype=torch.float64)
        self.register_buffer("free", plan.layout.broadcast(theta), persistent=False)

    def _get(self, name: str, dtype: torch.dtype) -> float | Tensor:
        return self.get_buffer("free").to(dtype) if name == "theta" else super()._get(name, dtype)


class Student:
    """`plan` of an assembly on `model`, which is its own and is changed."""

    def __init__(self, assembly: Assembly, plan: Plan, model: QuantizedModel) -> None:
        self.assembly, self.plan, self.model = assembly, plan, model
        self.weights: dict[str, Tensor] = {}
        self.biases: dict[str, Tensor] = {}
        self.thresholds: dict[str, Tensor] = {}
        for name in assembly.lattice.projections:
            self._open_projection(name)
        for name in assembly.lattice.neurons:
            self._open_neuron(name)
        self.clip()

    def _open_projection(self, name: str) -> None:
        """The rounding of a weight is free where GPTQ may choose it, a bias where it is one a channel."""
        p, folded = self.assembly.lattice.projections[name], self.assembly.folded
        if p.weight.bits is None or name in folded.discovery.shortcuts:
            return
        if p.input_steps is None:
            numbers = numbered(p.weight.integers, p.weight.odd)
            scales = p.weight.scales.view(-1, *[1] * (numbers.dim() - 1))
            side = numbered(folded.weight(name).double().cpu() / scales, p.weight.odd) - numbers
            self.weights[name] = self._number(numbers + side.clamp(-LEAN, LEAN))
        if not self._projection(name).has_map:
            self.biases[name] = self._number(torch.zeros_like(p.bias))

    def _open_neuron(self, name: str) -> None:
        n, plan, spec = self.assembly.lattice.neurons[name], self.plan.neurons[name], self.model.specs[name]
        if spec.emits != "spikes" or plan.most > 1 or not bool((n.theta > 0).all()):
            return
        shell = self.model.model.get_submodule(name)
        assert isinstance(shell, Shell)
        core = FreeCore(plan, spec, self.model.clock, self.plan.steps)
        shell.core = core.to(next(self.model.buffers()).device)
        self.thresholds[name] = self._number(torch.zeros_like(n.theta))

    def _number(self, x: Tensor) -> Tensor:
        return x.float().to(next(self.model.buffers()).device).requires_grad_()

    def _projection(self, name: str) -> QuantProjection:
        module = self.model.model.get_submodule(name)
        assert isinstance(module, QuantProjection)
        return module

    def _carrier(self, name: str) -> torch.dtype:
        return torch.float64 if self._projection(name).wide else torch.float32

    def numbers(self) -> list[list[Tensor]]:
        """What may be moved: weights, biases, thresholds."""
        return [list(group.values()) for group in (self.weights, self.biases, self.thresholds)]

    @torch.no_grad()
    def clip(self) -> None:
        """Numbers of weights that left the integers come back to their edge."""
        for name, u in self.weights.items():
            low, high = signed_range(self.assembly.lattice.projections[name].weight.bits or 0)
            u.clamp_(low - EDGE, high + EDGE)

    def weight(self, name: str) -> Tensor:
        """Wq [C, ...]."""
        odd = self.assembly.lattice.projections[name].weight.odd
        return on_levels(round_through(self.weights[name] + 0.0), odd)

    def bias(self, name: str) -> Tensor:
        """bq [C]."""
        p = self.assembly.lattice.projections[name]
        b0, free = self._projection(name).get_buffer("bias"), self.biases[name]
        length = p.weight.integers.flatten(1).norm(dim=1) * 2.0**p.shift
        return round_through(b0 + free.double() * length.to(free.device))

    def threshold(self, name: str) -> Tensor:
        """theta_q [C], at least 1."""
        free = self.thresholds[name]
        theta = torch.tensor(self.plan.neurons[name].theta, dtype=torch.float64, device=free.device)
        return round_through(theta * (1 + free.double())).clamp_min(1)

    def __call__(self, x: Tensor) -> Any:
        """The model's outputs with the integers as they are now, differentiable in the numbers."""
        used: dict[str, Tensor] = {}
        for name in self.weights:
            shift = self.assembly.lattice.projections[name].shift
            used[f"model.{name}.inner.weight"] = (self.weight(name) * 2.0**shift).to(self._carrier(name))
        for name in self.biases:
            bias = self.bias(name)
            used[f"model.{name}.bias"] = bias
            used[f"model.{name}.inner.bias"] = bias.to(self._carrier(name))
        for name in self.thresholds:
            layout = self.plan.neurons[name].layout
            used[f"model.{name}.core.free"] = layout.broadcast(self.threshold(name))
        return functional_call(self.model, used, (x,))

    @torch.no_grad()
    def assembled(self) -> tuple[Assembly, Plan]:
        """An assembly and a plan with the integers as they are now, and the states' scales as they were."""
        lattice = self.assembly.lattice
        biases = {n: self.bias(n).cpu() * lattice.projections[n].unit for n in self.biases}
        integers = {n: self.weight(n).double().cpu() for n in self.weights}
        # half a step lower: whatever the last bit of the product, it comes out as theta_q again
        moved = {n: (self.threshold(n).cpu() - 0.5) * lattice.neurons[n].unit for n in self.thresholds}
        made = Assembly(
            lattice.with_integers(integers).with_biases(biases),
            dict(self.assembly.traces),
            {**self.assembly.thresholds, **moved},
        )
        return made, made.plan({n: torch.tensor(p.bits) for n, p in self.plan.neurons.items()})

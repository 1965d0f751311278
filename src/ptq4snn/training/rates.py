"""The warm start: a network of firing rates that costs one time step.

A neuron with a hard reset that sees the same current x at every step fires every n-th step, where n is the
first step at which its charge reaches the threshold:

    gain * x * (1 + leak + ... + leak^(n-1)) >= theta      <=>      x >= x_n
    rate(x) = floor(T / n) / T

This staircase replaces each neuron while time is folded into one step. It has the weights of the spiking
network and starts it close to where it must be. Its surrogate gradient is that of the spikes, at every stair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ptq4snn.errors import RecipeError
from ptq4snn.frameworks import adapter_of
from ptq4snn.models.neuron import LIF

__all__ = ["Rate", "firing_rates", "stairs", "steps_seen"]

Stairs = tuple[tuple[float, float], ...]  # where it rises, by how much


def stairs(neuron: LIF, T: int) -> Stairs:
    """The currents at which the rate over T steps rises, and by how much."""
    out, below = [], 0
    for n in range(T, 0, -1):  # slow firing first
        count = T // n
        if count > below:
            charge = float(neuron.gain) * sum(float(neuron.leak) ** i for i in range(n))
            out.append((neuron.theta / charge, (count - below) / T))
            below = count
    return tuple(out)


class Staircase(torch.autograd.Function):
    """sum_n rise_n * [x >= level_n], with the arctangent surrogate of the spikes at every level."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, levels: Stairs, alpha: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.levels, ctx.alpha = levels, alpha  # type: ignore[attr-defined]
        y = torch.zeros_like(x)
        for level, rise in levels:
            y = y + rise * (x >= level).to(x.dtype)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        alpha: float = ctx.alpha  # type: ignore[attr-defined]
        slope = torch.zeros_like(x)
        for level, rise in ctx.levels:  # type: ignore[attr-defined]
            slope = slope + rise * (alpha / 2) / (1 + (math.pi / 2 * alpha * (x - level)).square())
        return grads[0] * slope, None, None


class Rate(nn.Module):
    """Firing rate over T steps of a neuron whose current does not change."""

    def __init__(self, neuron: LIF, T: int) -> None:
        super().__init__()
        if neuron.v_reset is None or any(True for _ in neuron.parameters()):
            raise RecipeError(
                "a rate stage needs neurons with a hard reset and a fixed leak: use spiking with steps = 1"
            )
        self.alpha, self.stairs = neuron.alpha, stairs(neuron, T)

    def forward(self, x: Tensor) -> Tensor:
        rate: Tensor = Staircase.apply(x, self.stairs, self.alpha)  # type: ignore[no-untyped-call]
        return rate


def steps_seen(model: nn.Module, x: Tensor) -> dict[str, int]:
    """Time steps that each neuron runs on input x; behind an average over time there is one."""
    seen: dict[str, int] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        return lambda _, inputs: seen.update({name: inputs[0].shape[0]})

    hooks = [m.register_forward_pre_hook(note(n)) for n, m in model.named_modules() if isinstance(m, LIF)]
    with torch.no_grad():
        model.eval()(x)
    for hook in hooks:
        hook.remove()
    return seen


@contextmanager
def firing_rates(model: nn.Module, steps: Mapping[str, int]) -> Iterator[None]:
    """Neurons give their rates over `steps` inside the context; those that are not named are never run.

    They have no parameters, so that the weights keep their names.
    """
    neurons = {name: m for name, m in model.named_modules() if isinstance(m, LIF)}
    for name, m in model.named_modules():
        if name not in neurons and adapter_of(m) is not None:
            raise RecipeError(
                f"'{name}' is a {type(m).__name__}, whose rates are not known: use spiking with steps = 1"
            )
    try:
        for name, neuron in neurons.items():
            model.set_submodule(name, Rate(neuron, steps.get(name, 1)))
        yield
    finally:
        for name, neuron in neurons.items():
            model.set_submodule(name, neuron)

"""The project's own neurons (models/neuron.py): a call is a whole sequence and leaves no state behind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Shell
from ptq4snn.frameworks.core import NeuronCore
from ptq4snn.models.neuron import LIF, fire

__all__ = ["NativeAdapter"]


class SequenceShell(Shell):
    def forward(self, x: Tensor) -> Tensor:  # [T, B, ...]
        return self.core.run(x, None)[0]


def scalar(value: float | Tensor) -> Tensor:
    """A float64 0-dim tensor, detached from training."""
    return torch.as_tensor(value, dtype=torch.float64).detach()


class NativeAdapter:
    name = "ptq4snn"

    def matches(self, module: nn.Module) -> bool:
        return isinstance(module, LIF)

    def spec(self, module: nn.Module, path: str) -> NeuronSpec:
        assert isinstance(module, LIF)
        alpha = module.alpha
        return NeuronSpec(
            leak=scalar(module.leak),
            gain=scalar(module.gain),
            theta=scalar(module.theta),
            rho=scalar(module.theta),
            comparator=">=",
            reset="soft" if module.v_reset is None else "hard",
            surrogate=lambda u: fire(u, alpha),
            v_rest=module.v_reset or 0.0,
        )

    def steps(self, module: nn.Module, x: Tensor) -> int | None:
        return x.shape[0]

    def reset(self, module: nn.Module) -> None:
        return None

    def shell(self, module: nn.Module, core: NeuronCore) -> Shell:
        return SequenceShell(core)

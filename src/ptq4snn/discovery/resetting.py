"""States between two passes."""

from __future__ import annotations

from torch import nn

from ptq4snn.frameworks import Compound, Shell, adapter_of

__all__ = ["reset_neurons"]


def reset_neurons(model: nn.Module) -> None:
    """Forget the state of every neuron, whatever framework it is of."""
    for module in model.modules():
        if isinstance(module, (Shell, Compound)):
            module.reset()
        elif (adapter := adapter_of(module)) is not None:
            adapter.reset(module)

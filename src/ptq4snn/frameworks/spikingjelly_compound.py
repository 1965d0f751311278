"""SpikingJelly's CUBALIFNode (2.0.0) and its recurrent containers.

CUBALIFNode                      I[t] = c_decay I[t-1] + x[t],   H[t] = v_decay V[t-1] + I[t]
LinearRecurrentContainer         sub_module(W_x x[t] + b + W_y y[t-1])
ElementWiseRecurrentContainer    sub_module(x[t] + y[t-1]), a projection with weights of one
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Reset
from ptq4snn.frameworks.compound import Before, Compound, OneToOne, Stage, derived, plain_linear
from ptq4snn.frameworks.foreign import origins, reference_current, values

__all__ = ["Cuba", "ElementWise", "Linear", "compound", "is_addition"]


class _Stepped(Compound):
    """x[B, ...] ('s') or x[T, B, ...] ('m'); what goes round stays until reset()."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        # Not `step_mode`: that is a property of SpikingJelly's base class.
        self._multi = getattr(module, "step_mode", "s") == "m"
        self.before = Before()
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self._step(x_t) for x_t in x.unbind(0)]) if self._multi else self._step(x)

    def _step(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Cuba(_Stepped):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        node: Any = module
        surrogate = node.surrogate_function
        one, leak, theta = values(1.0), values(node.v_decay), values(node.v_threshold)
        level, reset = reference_current(theta, leak), _reset(node)
        part: Callable[..., Stage] = derived(Stage, _memory(module))
        self.synapse = part(
            NeuronSpec(values(node.c_decay), one, level, level, ">=", "none", surrogate, emits="current")
        )
        self.membrane = part(NeuronSpec(leak, one, theta, theta, ">=", reset, surrogate), False)
        self.c: float | Tensor = 0.0
        self.v: float | Tensor = 0.0

    def reset(self) -> None:
        super().reset()
        self.c = self.v = 0.0

    def _step(self, x: Tensor) -> Tensor:
        current, self.c = self.synapse(x)
        fired: tuple[Tensor, Tensor] = self.membrane(current)
        self.v = fired[1]
        return fired[0]


def _reset(node: Any) -> Reset:
    return "soft" if node.v_reset is None else "hard"


class Linear(_Stepped):
    """A linear layer at the beginning of the sub_module becomes one with the container's own."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        container: Any = module
        self.features = int(container.sub_module_out_features)
        weight, bias = container.rc.weight.detach().double(), container.rc.bias
        bias = None if bias is None else bias.detach().double()
        sub = container.sub_module
        if isinstance(sub, nn.Sequential) and len(sub) > 1 and isinstance(sub[0], nn.Linear):
            weight, bias = _behind(sub[0], weight, bias)
            sub = nn.Sequential(OrderedDict([*sub.named_children()]))
            sub[0] = nn.Identity()
        like, inputs = container.rc.weight, weight.shape[1] - self.features
        self.input = plain_linear(weight[:, :inputs].to(like), None if bias is None else bias.to(like))
        self.recurrent = plain_linear(weight[:, inputs:].to(like))
        self.sub_module = sub

    def _step(self, x: Tensor) -> Tensor:
        kept = self.last_spikes(x.new_zeros((*x.shape[:-1], self.features)))
        y: Tensor = self.sub_module(self.input(x) + self.recurrent(self.before(kept)))
        self.spikes = y
        return y


def _behind(layer: nn.Linear, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """A linear layer behind (weight, bias), as one."""
    own = layer.weight.detach().double()
    shift = None if layer.bias is None else layer.bias.detach().double()
    if bias is not None:
        shift = own @ bias + (0 if shift is None else shift)
    return own @ weight, shift


class ElementWise(_Stepped):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        container: Any = module
        self.recurrent, self.sub_module = OneToOne(torch.ones(())), container.sub_module

    def _step(self, x: Tensor) -> Tensor:
        y: Tensor = self.sub_module(x + self.recurrent(self.before(self.last_spikes(x))))
        self.spikes = y
        return y


def is_addition(function: Callable[[Tensor, Tensor], Tensor]) -> bool:
    a, b = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    try:
        return torch.equal(function(a, b), a + b)
    except Exception:  # the user's own callable may fail in any way
        return False


def _memory(module: nn.Module) -> type:
    """The model's own MemoryModule: reset_net warns about any other class that can be reset."""
    return next(c for c in origins(module, "spikingjelly") if c.__name__ == "MemoryModule")


def compound(kind: Any, module: nn.Module) -> Compound:
    made: Compound = derived(kind, _memory(module))(module)
    return made

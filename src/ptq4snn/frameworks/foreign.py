"""What the adapters of foreign frameworks share: recognising, refusing, and shells that keep a state.

Nothing in here imports a framework: classes are told apart by module, by name and by what they override.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.errors import UnsupportedNeuron
from ptq4snn.frameworks.adapter import Comparator, Shell
from ptq4snn.frameworks.core import NeuronCore

__all__ = [
    "StatefulShell", "fires_like", "origins", "overridden", "reference_current", "refusal",
    "values",
]  # fmt: skip

ADAPTIVE = (
    "its threshold adapts: a third state that enters the comparison and not the sum, which is not canonical"
)
REGISTER = "register an adapter for it with ptq4snn.frameworks.register"

# What a subclass may redefine without changing what the neuron computes.
HARMLESS = frozenset({"__init__", "__repr__", "extra_repr", "supported_backends", "__class_getitem__"})


def refusal(path: str, module: nn.Module, why: str, remedy: str) -> UnsupportedNeuron:
    """The error for a neuron without an exact canonical form: where, what, why, what to do."""
    where = path or "the model itself"
    leave = f'; or keep it in float: overrides={{"{path}": {{"exclude": True}}}}' if path else ""
    return UnsupportedNeuron(
        f"{where}: {type(module).__name__} cannot be quantized because {why}; {remedy}{leave}."
    )


def origins(module: nn.Module, package: str) -> tuple[type, ...]:
    """The classes of `package` that `module` is made of, most derived first."""
    kind: Any = type(module)
    return _origins(kind, package)


@lru_cache(maxsize=1024)  # every module is asked before every batch
def _origins(kind: type, package: str) -> tuple[type, ...]:
    return tuple(c for c in kind.__mro__ if c.__module__.split(".")[0] == package)


def overridden(module: nn.Module, kind: type) -> str | None:
    """Name of a method of `kind` that `module` replaces, in a subclass or on the instance, or None."""
    mro = type(module).__mro__
    for cls in mro[: mro.index(kind)]:
        for name, value in vars(cls).items():
            method = callable(value) or isinstance(value, property | staticmethod | classmethod)
            if method and name not in HARMLESS and hasattr(kind, name):
                return name
    return next((name for name in vars(module) if callable(getattr(kind, name, None))), None)


def values(value: float | Tensor) -> Tensor:
    """A parameter in float64, 0-dim if it is one number; leading dimensions of 1 are dropped."""
    tensor = torch.as_tensor(value, dtype=torch.float64).detach()
    if tensor.numel() == 1:
        return tensor.reshape(())
    while tensor.shape[0] == 1:
        tensor = tensor.squeeze(0)
    return tensor.clone()


def reference_current(theta: Tensor, leak: Tensor) -> Tensor:
    """The size of a synaptic current that matters: what holds the membrane behind it at its threshold."""
    return theta * (1 - leak).clamp_min(1 / 16)


def fires_like(surrogate: Callable[[Tensor], Tensor], comparator: Comparator, device: torch.device) -> bool:
    """Whether the surrogate's forward is the step function u >= 0 (or u > 0), not analog and not random."""
    u = torch.tensor([-1.0, -1e-3, 0.0, 1e-3, 1.0], device=device)
    try:
        # a stochastic surrogate must not move the user's random state
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            spikes = surrogate(u)
    except Exception:  # the user's own callable may fail in any way
        return False
    expected = u >= 0 if comparator == ">=" else u > 0
    return isinstance(spikes, Tensor) and torch.equal(spikes.to(u.dtype), expected.to(u.dtype))


class StatefulShell(Shell):
    """A shell that keeps the canonical state V and the step count of the running sequence between calls."""

    _carried: tuple[str, ...] = ("_v",)  # attributes that hold tensors of the running sequence

    _v: Tensor | None
    _t: int

    def __init__(self, core: NeuronCore) -> None:
        super().__init__(core)
        self._v, self._t = None, 0

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StatefulShell:
        """The state follows the model to another device or type."""
        for name in self._carried:
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, fn(tensor))
        # SpikingJelly's base class takes no `recurse`
        super()._apply(fn, *(() if recurse else (False,)))  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For deepcopy: torch does not copy tensors that hang in a graph, so the copy's state is detached."""
        state = self.__dict__.copy()
        for name in self._carried:
            if state.get(name) is not None:
                state[name] = state[name].detach()
        return state

"""Adapters for foreign neurons. Only the files in here know foreign classes."""

from __future__ import annotations

from ptq4snn.extras import needed_by

with needed_by("ptq4snn.frameworks"):
    from torch import nn

from ptq4snn.frameworks.adapter import Adapter, NeuronSpec, Shell
from ptq4snn.frameworks.compound import Compound, StageAdapter
from ptq4snn.frameworks.native import NativeAdapter
from ptq4snn.frameworks.norse import NorseAdapter
from ptq4snn.frameworks.sinabs import SinabsAdapter
from ptq4snn.frameworks.snntorch import SnnTorchAdapter
from ptq4snn.frameworks.spikingjelly import SpikingJellyAdapter

__all__ = ["Adapter", "Compound", "NeuronSpec", "Shell", "adapter_of", "compound_of", "register"]

_adapters: list[Adapter] = [
    NativeAdapter(), StageAdapter(), SpikingJellyAdapter(), SnnTorchAdapter(), NorseAdapter(),
    SinabsAdapter(),
]  # fmt: skip


def register(adapter: Adapter) -> None:
    """Teach the library a user's own neuron; the newest adapter is asked first."""
    _adapters.insert(0, adapter)


def adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter that recognises `module` as a neuron, or None."""
    return next((a for a in _adapters if a.matches(module)), None)


def compound_of(module: nn.Module, path: str) -> Compound | None:
    """What a neuron of several states, or with weights of its own, is made of; None for all others."""
    if isinstance(module, Compound):
        return None
    known = adapter_of(module)
    for adapter in (
        [known] if known is not None else _adapters
    ):  # a container is no neuron, and may be one's home
        parts = getattr(adapter, "parts", None)
        made: Compound | None = None if parts is None else parts(module, path)
        if made is not None:
            return made
    return None

"""Neurons that no adapter knows: recognised by their names, for messages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from torch import nn

from ptq4snn.discovery.exclusion import advice, is_inside
from ptq4snn.errors import UnsupportedModel, UnsupportedNeuron
from ptq4snn.frameworks import adapter_of
from ptq4snn.hints import nearest

__all__ = ["no_neurons", "unknown_neuron"]

FOREIGN = ("rockpool", "lava", "bindsnet", "spyx", "nengo_dl", "nirtorch", "braincog")
BY_NIR = ("rockpool", "nengo_dl", "spyx", "lava")  # frameworks that write NIR files, or have tools that do
NAMED = re.compile(r"(IF|IAF|Neurons?|Node|Izhikevich|AdEx|SRM0?)(Torch|Cell|Layer|Nodes|Box)?\d*$")
KNOWN = {  # by class name; the first of a kind is the simplest
    "LIF": "ptq4snn.models.neuron.LIF", "IF": "ptq4snn.models.neuron.IF",
    "PLIF": "ptq4snn.models.neuron.PLIF", "LIFNode": "SpikingJelly's LIFNode",
    "IFNode": "SpikingJelly's IFNode", "ParametricLIFNode": "SpikingJelly's ParametricLIFNode",
    "CUBALIFNode": "SpikingJelly's CUBALIFNode", "Leaky": "snnTorch's Leaky",
    "Synaptic": "snnTorch's Synaptic", "RLeaky": "snnTorch's RLeaky", "LIFCell": "Norse's LIFCell",
    "LIFRecurrent": "Norse's LIFRecurrent", "LIFBoxCell": "Norse's LIFBoxCell", "IAF": "sinabs's IAF",
}  # fmt: skip
PAGE = "docs/guide.md, 'A neuron of your own'"


def unknown_neuron(
    model: nn.Module, excluded: Collection[str], failure: Exception
) -> UnsupportedNeuron | None:
    """The error for the neuron inside of which the model could not be followed, if it is one."""
    for name, module in _unknown(model, excluded):
        if f"'{name}'" in str(failure) or f"'{name}." in str(failure):
            return UnsupportedNeuron(
                f"{_what(name, module)}; {_remedy(module)}, or keep it in float: {advice([name])}"
            )
    return None


def no_neurons(model: nn.Module) -> UnsupportedModel:
    """The error for a model without any neuron that is known."""
    for name, module in _unknown(model, ()):
        return UnsupportedModel(
            f"the model has no spiking neurons that are known here: {_what(name, module)}; {_remedy(module)}"
        )
    return UnsupportedModel(
        "the model has no spiking neurons that are known here; supported are the project's own, "
        "SpikingJelly's, snnTorch's, Norse's and sinabs's as modules of the model (not exported or traced), "
        f"and your own by ptq4snn.frameworks.register ({PAGE})"
    )


def _unknown(model: nn.Module, excluded: Collection[str]) -> Iterator[tuple[str, nn.Module]]:
    """Modules that are called like neurons, or come from packages of neurons; the innermost ones."""
    for name, module in model.named_modules():
        if is_inside(name, excluded) or adapter_of(module) is not None or isinstance(module, nn.Linear):
            continue
        if not _named(module) and not _package(module):
            continue
        inner = [m for m in module.modules() if m is not module]
        if any(adapter_of(m) is not None or _named(m) or _package(m) for m in inner):
            continue
        yield name, module


def _named(module: nn.Module) -> bool:
    return NAMED.search(type(module).__name__) is not None


def _package(module: nn.Module) -> str:
    homes = (kind.__module__.split(".")[0] for kind in type(module).__mro__)
    found = next((home for home in homes if home in FOREIGN), "")
    return "" if "Linear" in type(module).__name__ else found


def _what(name: str, module: nn.Module) -> str:
    package, kind = _package(module), type(module).__name__
    return f"'{name or 'the model itself'}' is " + (f"{package}'s {kind}" if package else f"of class {kind}")


def _remedy(module: nn.Module) -> str:
    if _package(module) in BY_NIR:
        return (
            f"export the network to NIR and give that file (ptq4snn.from_nir), or write an adapter ({PAGE})"
        )
    near = nearest(type(module).__name__, KNOWN, alike=0.3) or "LIF"
    return (
        f"the nearest that is known is {KNOWN[near]}: use it where it computes the same, or write an adapter "
        f"({PAGE})"
    )

"""Exchange modules inside a model, wherever they are registered."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, fx, nn

from ptq4snn.errors import UnsupportedModel, first_line
from ptq4snn.frameworks import adapter_of

__all__ = ["copy_model", "replace_modules", "unwrapped"]


TRACES = {
    "_graph",
    "_code",
    "_wrapped_call",
    "_lineno_map",
    "_prologue_start",
    "_tracer_cls",
    "_tracer_extras",
}
WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile and data parallelism, which would only be run again and again here."""
    while (inside := WRAPPERS.get(type(model).__name__)) and isinstance(
        found := getattr(model, inside), nn.Module
    ):
        model = found
    return _untraced(model) if isinstance(model, fx.GraphModule) else model


def _untraced(traced: fx.GraphModule) -> nn.Module:
    """A module with the code that torch.fx made (as SpikingJelly's ann2snn does): classes of GraphModules
    cannot be derived from. Both share their layers."""
    kind: type = type(type(traced).__name__, (nn.Module,), {"forward": type(traced).forward})
    plain: nn.Module = object.__new__(kind)
    plain.__dict__.update({k: v for k, v in vars(traced).items() if k not in TRACES})
    for name in ("_parameters", "_buffers", "_modules"):
        plain.__dict__[name] = dict(vars(traced)[name])
    return plain


def copy_model(model: nn.Module, shared: Iterable[nn.Parameter] = ()) -> nn.Module:
    """A deep copy in eval mode that is independent of the user's model, but for the numbers of parameters
    that are `shared`: nobody may write into these, though either model may get others in their place.

    States left over from training hang in a graph and cannot be copied; their values can.
    """
    memo: dict[int, Any] = {id(t): t.detach().clone() for m in model.modules() for t in _in_graph(vars(m))}
    plain = (p for p in shared if type(p) is nn.Parameter and not p.is_inference())
    memo |= {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in plain}
    try:
        for m in model.modules():  # some frameworks' own way to copy a neuron fails, or shares what it holds
            if getattr(adapter_of(m), "copies_badly", False) and id(m) not in memo:
                memo[id(m)] = twin = type(m).__new__(type(m))
                twin.__dict__.update(copy.deepcopy(m.__dict__, memo))
        copied = copy.deepcopy(model, memo).eval()
    except (RuntimeError, TypeError) as why:
        raise UnsupportedModel(
            f"the model cannot be copied: {first_line(why)}; detach or delete the tensors it keeps"
        ) from why
    for parent in list(copied.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None:
                parent._modules[name] = unwrapped(child)
    return copied


def _in_graph(x: Any, depth: int = 3) -> Iterator[Tensor]:
    """Tensors inside plain containers that were computed from others."""
    if isinstance(x, Tensor):
        if x.grad_fn is not None:
            yield x
    elif depth and isinstance(x, (dict, list, tuple)):
        for value in x.values() if isinstance(x, dict) else x:
            yield from _in_graph(value, depth - 1)


def replace_modules(model: nn.Module, new: Mapping[str, nn.Module]) -> None:
    """Put `new[path]` in the place of the module at `path`, also where that module is registered twice."""
    old = {id(model.get_submodule(path)): module for path, module in new.items()}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and id(child) in old:
                parent._modules[name] = old[id(child)]

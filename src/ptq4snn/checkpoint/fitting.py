"""Whether a file's tensors fit a model, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ptq4snn.checkpoint.naming import adapt, is_optional
from ptq4snn.errors import CheckpointError

__all__ = ["check_fit", "own_tensors"]

SHOWN = 3
LAST = ("head", "head_kd", "fc", "conv_seg")  # names of layers that have an output for each class


@dataclass(frozen=True)
class Misfit:
    """Names of the model's tensors, but of the file's where they are `unexpected`."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.wrong_shape)


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}


def misfit(model: nn.Module, state: Mapping[str, Tensor]) -> Misfit:
    own = own_tensors(model)
    return Misfit(
        tuple(k for k in own if k not in state and not is_optional(model, k)),
        tuple(k for k in state if k not in own),
        tuple(k for k, v in own.items() if k in state and state[k].shape != v.shape),
    )


def check_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Raise if names or shapes differ from the model's."""
    found = misfit(model, state)
    if not found:
        return
    own = own_tensors(model)
    parts = [
        listing("missing", found.missing),
        listing("unexpected", found.unexpected),
        listing(
            "wrong shape",
            (f"{k} {list(state[k].shape)} instead of {list(own[k].shape)}" for k in found.wrong_shape),
        ),
    ]
    raise CheckpointError(
        f"{path} does not fit {type(model).__name__}: {'; '.join(filter(None, parts))}; "
        f"{advice(model, own, state, found)}"
    )


def advice(model: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor], found: Misfit) -> str:
    """What to do, where the cause can be recognised."""
    hints = (
        distillation(found),
        classes(own, state, found),
        learned_leak(state, found),
        built_in(model, state),
    )
    return next(filter(None, hints), "give the model that this checkpoint was trained with")


def distillation(found: Misfit) -> str:
    if found.wrong_shape:
        return ""
    if found.unexpected and all(k.startswith("head_kd.") for k in found.unexpected) and not found.missing:
        return (
            "this file has a distillation head: build the model with kd=True "
            "(as metaspikeformer-8-512-kd-imagenet is)"
        )
    if found.missing and all(k.startswith("head_kd.") for k in found.missing) and not found.unexpected:
        return "this file has no distillation head: build the model with kd=False"
    return ""


def classes(own: Mapping[str, Tensor], state: Mapping[str, Tensor], found: Misfit) -> str:
    """Where only the last layer differs, and there only in its number of outputs."""
    wrong = found.wrong_shape
    if not wrong or found.missing or found.unexpected or not all(is_last(k, own) for k in wrong):
        return ""
    if any(state[k].shape[1:] != own[k].shape[1:] for k in wrong):
        return ""
    n = state[wrong[0]].shape[0]
    return f"the file has {n} classes: build the model with num_classes={n} (--classes {n})"


def is_last(name: str, own: Mapping[str, Tensor]) -> bool:
    layer = name.rpartition(".")[0]
    return layer.rpartition(".")[2] in LAST or layer == [*own][-1].rpartition(".")[0]


def learned_leak(state: Mapping[str, Tensor], found: Misfit) -> str:
    """PLIF neurons have a parameter w; neurons without it have no parameters."""
    if found.missing or found.wrong_shape:
        return ""
    if all(k.rpartition(".")[2] == "w" and state[k].dim() == 0 for k in found.unexpected):
        return "the file's neurons learned their leak: build the model with neuron=PLIF"
    return ""


def built_in(model: nn.Module, state: Mapping[str, Tensor]) -> str:
    """The built-in model of the same class that the file fits."""
    from ptq4snn.models.zoo import MODELS

    for name, entry in MODELS.items():
        with torch.device("meta"):  # shapes without memory
            other = entry.make()
        if type(other) is type(model) and not misfit(other, adapt(other, dict(state)).state):
            return f"it has the names and shapes of {name}: use that model"
    return ""


def listing(title: str, items: Iterable[str]) -> str:
    """`title a, b, c and 7 more`, or nothing."""
    every = list(items)
    if not every:
        return ""
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{title} {', '.join(every[:SHOWN])}{more}"

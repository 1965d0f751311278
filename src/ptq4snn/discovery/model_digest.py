"""What makes a model the one it is: all bytes of its tensors, and the operations that its forward pass runs.

The forward pass is recorded below Python, inside of neurons and layers too, on one batch: every ATen
operation with its plain arguments, the shapes it makes and where its tensors come from. Source files are not
looked at: a constant in a module that the model's file imports shows itself in an operation, a comment does
not. (`discovery.record` takes neurons and layers for one node each: too little to tell models apart.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.surgery import copy_model, unwrapped
from ptq4snn.discovery.uncompiled import without_compiler
from ptq4snn.errors import DataError, first_line
from ptq4snn.hashing import Hash, digest

__all__ = ["graph_digest", "model_digest", "weights_digest"]

COUNTER = "num_batches_tracked"  # of BatchNorm, unused in inference


def model_digest(model: nn.Module, x: Tensor) -> str:
    """Of the weights and of the graph on the batch `x`."""
    return digest(weights_digest(model), graph_digest(model, x))


def weights_digest(model: nn.Module) -> str:
    """Of every tensor of the state_dict by its name, but for the counters that inference does not use. Values
    count, not types: a copy of the model in float64 is the same model."""
    given = unwrapped(model)
    copied = copy_model(given, given.parameters())
    reset_neurons(copied)
    return digest(_Wide({name: t for name, t in copied.state_dict().items() if is_weight(name, t)}))


class _Wide(Mapping[str, Tensor]):
    """Tensors of which each is in float64 while it is looked at."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        t = self.tensors[name]
        return t.double() if t.is_floating_point() else t

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def graph_digest(model: nn.Module, x: Tensor) -> str:
    """Of what `model(x)` runs, whatever the values of its weights and of x, if they do not decide that."""
    copied = copy_model(unwrapped(model))
    reset_neurons(copied)
    without_compiler(Tape)
    tape = Tape(copied)
    where = next(copied.parameters(), x).device
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # of encoders that draw spikes
            given = x.to(where)
            tape.note(given, "input")
            with tape:
                out = copied(given)
        for tensor in tree_flatten(out)[0]:
            tape.hash.add(tape.name(tensor) if isinstance(tensor, Tensor) else "")
    except (RuntimeError, ValueError, TypeError, IndexError) as why:
        raise DataError(
            f"the model cannot run on a sample of shape {list(x.shape)} and type {x.dtype}: "
            f"{first_line(why)}; check the input's shape and type and "
            "batch_axis"
        ) from why
    return tape.hash.hexdigest()


def is_weight(name: str, value: Any) -> bool:
    return isinstance(value, Tensor) and not name.endswith(COUNTER)


class Tape(TorchDispatchMode):
    """Adds every operation to a hash. Tensors are numbered as they come; constants count by content."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hash = Hash()
        self.names: Any = WeakTensorKeyDictionary()
        self.count = 0
        kept = model.state_dict().keys()
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if name in kept:  # a buffer that is not saved is a constant
                self.note(t, f"weight {name}")

    def note(self, tensor: Tensor, name: str) -> None:
        self.names[tensor] = name
        self.hash.add([name, str(tensor.dtype), list(tensor.shape)])

    def name(self, tensor: Tensor) -> str:
        if tensor not in self.names:
            self.note(tensor, f"constant {digest(tensor)}")
        found: str = self.names[tensor]
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.hash.add([str(func), self.plain(list(args)), self.plain(kwargs or {})])
        result = func(*args, **(kwargs or {}))
        for made in tree_flatten(result)[0]:
            if isinstance(made, Tensor) and made not in self.names:
                self.note(made, f"value {self.count}")
                self.count += 1
        return result

    def plain(self, x: Any) -> Any:
        """Arguments with names for tensors and text for types, devices and the like."""
        known = bool | int | float | str | None
        return tree_map(
            lambda a: self.name(a) if isinstance(a, Tensor) else a if isinstance(a, known) else str(a), x
        )

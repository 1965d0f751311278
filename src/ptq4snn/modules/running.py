"""Quantized models on the packed runtime, where they can: the same bits as the simulation, sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.modules.output_ends import finish
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import model_of
from ptq4snn.runtime.native import available

__all__ = ["OnRuntime", "fastest", "whole_sequences"]

PROOF = 2  # samples of the first batch on which runtime and simulation are compared

Forward = Callable[[Tensor], Any]
_made: WeakKeyDictionary[QuantizedModel, tuple[Plan, Packed | None]] = WeakKeyDictionary()


class Packed:
    """Calls the native kernels in a model's place. What they do not take goes to the model."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.proven: bool | None = None  # not compared yet

    def __call__(self, model: QuantizedModel, x: Tensor) -> Any:
        """The model's output tensors; its neurons must be at rest."""
        if not self.takes(x):
            return model(x)
        if self.proven is None:
            self.proven = self.agrees(model, x)
        if not self.proven:
            return model(x)
        try:
            return self.tensors(model, x)
        except DataError:  # what the runtime does not take, such as NaN, the simulation tells
            return model(x)

    def takes(self, x: Tensor) -> bool:
        """Images of the size that the program was made for. A float64 input would be rounded."""
        want = self.runtime.model.program.input
        shape = list(x.shape)
        for axis in sorted({want.batch_axis, *([] if want.time_axis is None else [want.time_axis])})[::-1]:
            if axis < len(shape):
                del shape[axis]
        return x.device.type == "cpu" and x.dtype == torch.float32 and tuple(shape) == want.shape

    def tensors(self, model: QuantizedModel, x: Tensor) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = OnRuntime(self.runtime)(x)
        if not model.finishes:
            return out
        return tuple(finish(y, how.then) for y, how in zip(out, model.plan.outputs, strict=True))

    def agrees(self, model: QuantizedModel, x: Tensor) -> bool:
        """Whether both give the same bits: not where the model was changed after it was quantized."""
        axis = self.runtime.model.program.input.batch_axis
        few = x.narrow(axis, 0, min(PROOF, x.shape[axis]))
        expected = [t for t in tree_flatten(model(few))[0] if isinstance(t, Tensor)]
        reset_neurons(model)
        try:
            found = self.tensors(model, few)
        except DataError:
            return False
        return len(found) == len(expected) and all(map(torch.equal, found, expected))


class OnRuntime(nn.Module):
    """A bundle's program in a model's place: what it returns, as tensors."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.runtime(x.detach().cpu().numpy(), threads=torch.get_num_threads())
        return tuple(map(torch.from_numpy, found if isinstance(found, tuple) else (found,)))


def fastest(model: nn.Module) -> Forward:
    """What computes model(x) from rest: the native kernels for a quantized model that has a program, else the
    model itself."""
    packed = _packed(model) if isinstance(model, QuantizedModel) else None
    if packed is None:
        return model
    assert isinstance(model, QuantizedModel)
    return lambda x: packed(model, x)


@contextmanager
def whole_sequences(model: nn.Module) -> Iterator[None]:
    """Inside, a call of a quantized model that takes one step at a time runs its whole loop."""
    if not isinstance(model, QuantizedModel) or not model.one_step:
        yield
        return
    model.check_loop()
    model.one_step = False
    try:
        yield
    finally:
        model.one_step = True


def _packed(model: QuantizedModel) -> Packed | None:
    """Made once for each plan."""
    known = _made.get(model)
    if known is None or known[0] is not model.plan:
        made = _make(model)
        trial = not model.report  # nobody has had it in hands yet
        if trial and made is not None and known is not None and known[1] is not None:
            made.proven = known[1].proven or None  # for the same program with other numbers of its states
        known = _made[model] = (model.plan, made)
    return known[1]


def _make(model: QuantizedModel) -> Packed | None:
    if model.program is None or model.plan.arithmetic != "integer" or not any(available()):
        return None
    try:
        made = model_of(model.program, model.plan, model.integers)
        outputs = tuple(replace(out, then=()) for out in made.program.outputs)  # what follows is added here
        return Packed(Runtime(replace(made, program=replace(made.program, outputs=outputs))))
    except PTQ4SNNError:  # a width or a bound that the kernels do not take: the simulation does
        return None

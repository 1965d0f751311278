"""Quantized models on the packed runtime, where they can: the same bits as the simulation, sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.errors import DataError, PTQ4SNNError
from ptq4snn.modules.output_ends import finish
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import Plan
from ptq4snn.network.program import Program
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import Family, model_of
from ptq4snn.runtime.native import available

__all__ = ["OnRuntime", "fastest", "whole_sequences"]

PROOF = 2  # samples of the first batch on which runtime and simulation are compared

Forward = Callable[[Tensor], Any]
_made: WeakKeyDictionary[QuantizedModel, Made] = WeakKeyDictionary()


@dataclass(frozen=True)
class Made:
    """What was made of a model for a plan and a program; `packed` is None where the simulation must do."""

    plan: Plan
    trial: bool
    program: Program | None = None
    family: Family | None = None
    packed: Packed | None = None


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
    """Made once for each plan, and anew once the model is handed out: trials are proven for their steps."""
    known, trial = _made.get(model), not model.report  # nobody has had it in hands yet
    if known is None or known.plan is not model.plan or known.trial is not trial:
        known = _made[model] = _make(model, known if trial else None)
    return known.packed


def _make(model: QuantizedModel, known: Made | None) -> Made:
    plan, program, trial = model.plan, model.program, not model.report
    if program is None or plan.arithmetic != "integer" or not any(available()):
        return Made(plan, trial)
    same = known is not None and known.program is program  # with other numbers of its states
    family, proven = (known.family, known.packed) if known is not None and same else (None, None)
    try:
        if family is None:
            stored = {name: i.stored() for name, i in model.integers.items()}
            family = Family(model_of(without_ends(program), without_ends(plan), stored))
            found = family.first
        else:
            found = family.member(without_ends(plan))
        packed = Packed(Runtime(found))
    except PTQ4SNNError:  # a width or a bound that the kernels do not take: the simulation does
        return Made(plan, trial, program, family)
    packed.proven = None if proven is None else proven.proven or None
    return Made(plan, trial, program, family, packed)


P = TypeVar("P", Plan, Program)


def without_ends(made: P) -> P:
    """What follows the outputs is added here (`Packed.tensors`)."""
    return replace(made, outputs=tuple(replace(out, then=()) for out in made.outputs))

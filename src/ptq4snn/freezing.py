"""From a plan to a model that is done: built with its program, then frozen and proven."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ptq4snn.assemble import Assembly
from ptq4snn.errors import BundleError, ExactnessError, UnsupportedOperation
from ptq4snn.heap import give_back
from ptq4snn.lowering import lower
from ptq4snn.memory import Portion
from ptq4snn.modules.output_ends import finish
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.modules.readout import same_draws
from ptq4snn.network.plan import Plan
from ptq4snn.prepare import first_samples
from ptq4snn.prepared import Prepared
from ptq4snn.progress import stepping
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.loading import model_of
from ptq4snn.runtime.native import available
from ptq4snn.runtime.parameters import Model
from ptq4snn.stages import BUILDING

__all__ = ["build_model", "frozen"]


def build_model(prepared: Prepared, assembly: Assembly) -> QuantizedModel:
    """The quantized model with all states at the budget, lowered, so that what is tried with it runs on the
    packed runtime. A model without a program works here as well."""
    with stepping(prepared.progress, 2, BUILDING) as advance:
        model = QuantizedModel(prepared.model, assembly.plan(assembly.uniform_bits()), assembly.integers())
        advance()
        try:
            model.program = lower(model, prepared.sample, prepared.batch_axis)
        except UnsupportedOperation as why:
            model.not_lowered = str(why)
        advance()
    return model


@contextmanager
def frozen(prepared: Prepared, model: QuantizedModel, plan: Plan) -> Iterator[None]:
    """The model computes `plan` from now on, proven. Inside, it may be measured: the first call is what the
    program is compared with at the end, so that the simulation need not run for the proof alone."""
    model.use(plan)
    proven = prove_bounds(model)
    give_back()
    call = FirstCall()
    handle = model.register_forward_hook(call)
    try:
        yield
    finally:
        handle.remove()
    if proven is not None:
        prove_program(prepared, model, call, Runtime(proven))


@dataclass
class FirstCall:
    """What a model was given first, and its outputs in front of a softmax or an argmax, as a forward hook."""

    x: Tensor | None = None
    outputs: list[Tensor] = field(default_factory=list)

    def __call__(self, model: nn.Module, args: Any, out: Any) -> None:
        if self.x is None and args and isinstance(model, QuantizedModel) and not model.finishes:
            self.x = args[0].detach()
            self.outputs = [y for y in tree_flatten(out)[0] if isinstance(y, Tensor)]

    def is_enough(self) -> bool:
        """Whether a runtime takes it and is fast enough to run all of it; a float64 input it would round."""
        return self.x is not None and self.x.dtype != torch.float64 and any(available())


def prove_bounds(model: QuantizedModel) -> Model | None:
    """No accumulator of the program overflows, whatever the input; else there is no program."""
    if model.program is None:
        return None
    try:
        return model_of(model.program, model.plan, {n: i.stored() for n, i in model.integers.items()})
    except BundleError as why:
        model.program, model.not_lowered = None, str(why)
        return None


def prove_program(prepared: Prepared, model: QuantizedModel, call: FirstCall, runtime: Runtime) -> None:
    """On held-out samples the program gives the outputs of the simulation, bit for bit, or there is no
    model."""
    if call.is_enough() and call.x is not None:
        ends = [how.then for how in model.plan.outputs]
        expected = [finish(y, then) for y, then in zip(call.outputs, ends, strict=True)]
        _compare(runtime, call.x, expected)
        return
    x = first_samples(prepared.sample, prepared.batch_axis, prepared.sample.shape[prepared.batch_axis], 2)
    if x.is_floating_point():
        x = x.float()
    if not any(available()):  # NumPy is slower
        x = x.narrow(prepared.batch_axis, 0, min(2, x.shape[prepared.batch_axis]))
    prepared.room.run(x, partial(_simulate, model, runtime), "proving the program")


def _simulate(model: QuantizedModel, runtime: Runtime, portion: Portion) -> None:
    model.reset_state()
    with torch.no_grad(), same_draws():
        expected = [y for y in tree_flatten(model(portion.x))[0] if isinstance(y, Tensor)]
    model.reset_state()
    _compare(runtime, portion.x, expected)


def _compare(runtime: Runtime, x: Tensor, expected: list[Tensor]) -> None:
    y = runtime(x.cpu().numpy())
    found = [torch.from_numpy(array) for array in (y if isinstance(y, tuple) else (y,))]
    for number, (a, b) in enumerate(zip((e.cpu() for e in expected), found, strict=True)):
        if a.shape != b.shape or not torch.equal(a, b):
            raise ExactnessError(
                f"output {number} of the integer program is not that of the quantized model: "
                f"{a.numel() if a.shape != b.shape else int((a != b).sum())} of {a.numel()} values differ on "
                f"held-out samples. This is a fault of ptq4snn, so nothing was made; please report the model"
            )

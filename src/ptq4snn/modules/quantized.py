"""The quantized model: the user's own model with integers inside. Same forward, same habits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from ptq4snn.discovery.batchnorm import left_of_norm
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.discovery.editing import leave_out
from ptq4snn.discovery.input_types import in_full
from ptq4snn.discovery.looping import Looped
from ptq4snn.discovery.mirror import Mirror
from ptq4snn.discovery.surgery import copy_model, replace_modules
from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.frameworks import Compound, Shell, adapter_of
from ptq4snn.modules.carrier import Clock, plain, tracked
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.output_ends import finish
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.modules.saving import save_model, signature
from ptq4snn.network.plan import OutputPlan, Plan
from ptq4snn.network.program import Program
from ptq4snn.numerics.device import exact_arithmetic, keeping_types
from ptq4snn.numerics.nearest import narrowed
from ptq4snn.report.notebook import fragment
from ptq4snn.report.static import report_of_plan
from ptq4snn.runtime.loading import Stored
from ptq4snn.schema.report_types import Report

__all__ = ["Integers", "QuantizedModel"]


@dataclass(frozen=True)
class Integers:
    """Weight integers [C, ...] and bias integers of one projection, [C] or [positions, C], in float64; the
    weight is kept in eight bits a number where these hold it."""

    kept: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Integers:
        return cls(narrowed(weight), bias)

    @property
    def weight(self) -> Tensor:
        return self.kept.double()

    def stored(self) -> Stored:
        """As a runtime reads them."""
        return Stored(self.kept.cpu().numpy(), self.bias.cpu().numpy())


class QuantizedModel(nn.Module):
    """Computes exactly what `plan` says. `report` says what it cost, `program` is what the runtime runs.

    Where the loop over time is the user's, a call is one step of it (`one_step`), and `sequence` runs all.
    """

    def __init__(self, model: nn.Module, plan: Plan, integers: Mapping[str, Integers]) -> None:
        super().__init__()
        self.plan, self.integers = plan, dict(integers)
        self.clock = Clock()
        self.one_step = False
        self.finishes = True  # outputs come behind the softmax or argmax that the model ends with
        self.report: Report = {}
        self.program: Program | None = None
        self.not_lowered = ""  # why there is no program
        self.source: str | None = None  # hash of the float weights it was made from
        self.signature = signature(model)
        given = [model.get_submodule(name) for name in plan.projections]
        self.model = copy_model(model, (p for m in given for p in m.parameters()))  # others take their place
        leave_out(self.model)
        reset_neurons(self.model)
        self.specs = {}
        new: dict[str, nn.Module] = {n: left_of_norm(self.model.get_submodule(n)) for n in plan.norms}
        for name, m in plan.mirrors.items():
            new[name] = Mirror(torch.tensor(m.signs), torch.tensor(m.shifts), m.axis)
        for name, p in plan.projections.items():
            ints = integers[name]
            module = self.model.get_submodule(name)
            new[name] = QuantProjection(module, p, ints.kept, ints.bias, self.clock, plan.steps)
        for name, n in plan.neurons.items():
            neuron = self.model.get_submodule(name)
            adapter = adapter_of(neuron)
            if adapter is None:
                kind = type(neuron).__name__
                raise BundleError(f"'{name}' is a {kind}, not a neuron: another model's bundle")
            self.specs[name] = adapter.spec(neuron, name)
            if (self.specs[name].reset, self.specs[name].comparator) != (n.reset, n.comparator):
                raise BundleError(f"the neuron '{name}' resets or fires otherwise: another model's bundle")
            new[name] = adapter.shell(neuron, IntegerCore(n, self.specs[name], self.clock, plan.steps))
        replace_modules(self.model, new)
        if plan.neurons:  # snntorch.utils.reset(q) looks for neurons among the direct children
            name = next(iter(plan.neurons))
            home = self.model.get_submodule(name.rpartition(".")[0])
            self.any_neuron = home if isinstance(home, Compound) else self.model.get_submodule(name)
        self.requires_grad_(False).eval()

    def use(self, plan: Plan) -> None:
        """Take over the neurons of another plan for the same lattice."""
        self.plan = plan
        for name, n in plan.neurons.items():
            shell = self.model.get_submodule(name)
            assert isinstance(shell, Shell)
            if shell.core.plan != n:
                device = next(self.buffers()).device
                shell.core = IntegerCore(n, self.specs[name], self.clock, plan.steps).to(device)

    def core(self, neuron: str) -> IntegerCore:
        shell = self.model.get_submodule(neuron)
        assert isinstance(shell, Shell) and isinstance(shell.core, IntegerCore)
        return shell.core

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.one_step:
            return self._run(self.model, self.plan.outputs, *args, **kwargs)
        step = self.model.step if isinstance(self.model, Looped) else self.model
        return self._run(step, self.plan.step_outputs, *args, **kwargs)

    def sequence(self, *args: Any, **kwargs: Any) -> Any:
        """The whole sequence from rest, by the loop that was given to `quantize` or `load`."""
        self.check_loop()
        self.reset_state()
        return self._run(self.model, self.plan.outputs, *args, **kwargs)

    def check_loop(self) -> None:
        """A step alone is no sequence."""
        if self.one_step and not isinstance(self.model, Looped):
            raise BundleError(
                "the model takes one time step a call and its loop is not known here: give ptq4snn.load "
                "the loop that was given to quantize, or use ptq4snn.runtime"
            )

    def _run(
        self, call: Callable[..., Any], outputs: tuple[OutputPlan, ...], *args: Any, **kwargs: Any
    ) -> Any:
        self.clock.start()
        args, kwargs = tree_map_only(Tensor, in_full, (args, kwargs))
        with exact_arithmetic(next(self.buffers()).device):
            out = call(*args, **kwargs)
        leaves, tree = tree_flatten(out)
        if sum(isinstance(x, Tensor) for x in leaves) != len(outputs):
            raise BundleError(
                f"the model returns other outputs than the one that was quantized, which returned "
                f"{len(outputs)} tensors; give that model"
            )
        numbers = iter(range(len(leaves)))
        decoded = [self._decode(x, next(numbers), outputs) if isinstance(x, Tensor) else x for x in leaves]
        return tree_unflatten(decoded, tree)

    def _decode(self, x: Tensor, number: int, outputs: tuple[OutputPlan, ...]) -> Tensor:
        """Integers of a projection to real numbers: acc * s in float64, stored as float32; then what the
        model's forward ends with."""
        how, x = outputs[number], plain(x)
        x = self._rounded_once(x, number) if outputs is self.plan.outputs else x
        if how.output_scales:
            worth = torch.tensor(how.output_scales, dtype=torch.float64, device=x.device)
            x = (x.double() * worth.view(-1, *[1] * (-how.axis - 1))).float()
        x = x if how.projection is None else self._real(x, how)
        return finish(x, how.then) if self.finishes else x

    def _real(self, x: Tensor, how: OutputPlan) -> Tensor:
        assert how.projection is not None
        p = self.plan.projections[how.projection]
        unit = torch.tensor(p.lattice, dtype=torch.float64, device=x.device) * 2.0**-p.shift
        if p.rescale is not None:
            unit = torch.tensor(p.rescale.scales, dtype=torch.float64, device=x.device)
        return (x.double() * unit.view(-1, *[1] * (-how.axis - 1))).float()

    def _rounded_once(self, x: Tensor, number: int) -> Tensor:
        """A mean of means as its integer, divided as the program says.

        torch rounds on the way and adds in an order that depends on the batch; this result does not.
        """
        if self.program is None or tracked(x):
            return x
        how = self.program.outputs[number]
        name = self.plan.outputs[number].projection
        whole = name is None or not self.plan.projections[name].over_time
        if how.kind == "potential" or not how.scalings or not whole:
            return x
        by = [(s[0] == "mul", float(s[1]) if len(s) == 2 else float(self.clock.steps)) for s in how.scalings]
        inverse = math.prod(1 / c if times else c for times, c in by)
        y = (x.double() * inverse).round().to(x.dtype)
        for times, c in by:
            y = y * c if times else y / c
        return y

    def reset_state(self) -> None:
        """Forget every neuron's state, whatever framework it is of."""
        reset_neurons(self.model)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedModel:
        """Another device, but never another type: integers need the carriers that hold them exactly."""
        super()._apply(keeping_types(fn), recurse)  # type: ignore[no-untyped-call]
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedModel:
        twin = QuantizedModel.__new__(QuantizedModel)
        memo[id(self)] = twin
        twin.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PTQ4SNNError(
            "a quantized model cannot be pickled (torch.save, multiprocessing): write it with q.save(path) "
            "and read it with ptq4snn.load(path, model)"
        )

    def summary(self, everything: bool = False) -> str:
        """The report on one screen of plain text; `everything`: a line for all of the layers."""
        from ptq4snn.report.screen import screen
        from ptq4snn.report.terminal import plain

        return plain(screen(self._known(), everything))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return fragment(self._known())

    def _known(self) -> Report:
        """The report, or where it was lost what the plan tells."""
        if self.report.get("summary"):
            return self.report
        return report_of_plan(self.plan, {name: i.kept.numel() for name, i in self.integers.items()})

    def save(self, path: str | Path, page: bool = False) -> None:
        """Write the bundle, and the report beside it as JSON; with `page` also as a page to look at."""
        save_model(self, Path(path), page)

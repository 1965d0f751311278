"""A projection that computes integers: y = ((Wq x) << F) + bq, perhaps rescaled to a stream or a chain."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.modules.carrier import Clock, StreamTensor, counted, plain, round_through
from ptq4snn.network.plan import InputPlan, ProjectionPlan
from ptq4snn.numerics.device import keeping_types, refuse_autocast
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.limits import EXACT_FLOAT32, ZERO_FRACTION_BITS

__all__ = ["InputQuantizer", "QuantProjection"]

MANY = 2**18  # numbers of a weight; fewer take little memory as floats


def along(values: Tensor, axis: int) -> Tensor:
    """A vector shaped to lie along `axis` (counted from the end)."""
    return values.view(-1, *[1] * (-axis - 1))


class InputQuantizer(nn.Module):
    """Real inputs to the integers p in 0..255 of their channel."""

    inverse: Tensor
    zero: Tensor
    inside: Tensor  # the level that stands for 0 at the projection

    def __init__(self, plan: InputPlan, axis: int) -> None:
        super().__init__()
        scales, zeros = (torch.tensor(v, dtype=torch.float64) for v in plan.read)
        self.register_buffer("inverse", along(1 / scales, axis), persistent=False)
        self.register_buffer("zero", along(zeros / 2**ZERO_FRACTION_BITS, axis), persistent=False)
        inside = torch.tensor(plan.zeros, dtype=torch.float64) / 2**ZERO_FRACTION_BITS
        self.register_buffer("inside", along(inside, axis), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x.double() * self.inverse + self.zero).round_().clamp_(0, 255)


class QuantProjection(nn.Module):
    """The framework's own module with integer weights inside: 5-D inputs, groups, padding stay its business.

    The module is given weights shifted by F, so its own bias is bq and nothing is added outside. Few of them
    are kept as it needs them; many in eight bits a number, and made floats for each call.
    """

    coefficient: Tensor | None
    unit: Tensor

    def __init__(
        self, module: nn.Module, plan: ProjectionPlan, weight: Tensor, bias: Tensor, clock: Clock, steps: int
    ) -> None:
        super().__init__()
        self.plan, self.clock, self.steps = plan, clock, steps
        self.axis = channel_axis(module)
        # the classifier's integers are summed over time by the model's own code: float64 keeps them exact
        self.wide = plan.bound >= EXACT_FLOAT32 or plan.bits is None or plan.role == "output"
        self.carrier = dtype = torch.float64 if self.wide else torch.float32
        self.inner = copy.deepcopy(module, {id(p): p for p in module.parameters()})  # others take their place
        packed = weight.dtype == torch.int8 and weight.numel() >= MANY
        kept = weight if packed else self._shifted(weight)
        self.inner.weight = nn.Parameter(kept, requires_grad=False)
        self.quantizer = InputQuantizer(plan.input, self.axis) if plan.input is not None else None
        self.has_map = bool(plan.places) or (plan.input is not None and any(plan.input.zeros))
        own = None if self.has_map else nn.Parameter(bias.to(dtype), requires_grad=False)
        self.inner.register_parameter("bias", own)
        self.register_buffer("bias", bias.double(), persistent=False)
        self.maps: dict[tuple[int, ...], Tensor] = {}
        coefficient = None
        if plan.rescale is not None:
            r = plan.rescale
            exact = [math.ldexp(m, -n) for m, n in zip(r.multipliers, r.shifts, strict=True)]
            coefficient = along(torch.tensor(exact, dtype=torch.float64), self.axis)
        self.register_buffer("coefficient", coefficient, persistent=False)
        unit = torch.tensor(plan.lattice, dtype=torch.float64) * 2.0**-plan.shift
        self.register_buffer("unit", along(unit, self.axis), persistent=False)

    def __getattr__(self, name: str) -> Any:
        """What the user's forward may ask a layer: its settings, and the weight in real numbers."""
        modules = self.__dict__.get("_modules", {})
        if name == "weight" and "inner" in modules:
            real = self.with_floats().weight.double() * 2.0**-self.plan.shift
            scales = torch.tensor(self.plan.scales, dtype=torch.float64, device=real.device)
            return (real * scales.view(-1, *[1] * (real.dim() - 1))).float()
        if "inner" in modules and name in vars(modules["inner"]) and not name.startswith("_"):
            return vars(modules["inner"])[name]  # in_features, stride ...
        return super().__getattr__(name)

    def _shifted(self, integers: Tensor) -> Tensor:
        return integers.to(self.carrier, copy=True).mul_(2.0**self.plan.shift)

    def with_floats(self) -> Any:
        """The framework's module with the weight as it computes with it."""
        weight: Tensor = self.inner.weight  # type: ignore[assignment]
        if weight.is_floating_point():
            return self.inner
        inner = copy.copy(self.inner)  # the module itself stays as it is: another thread may run it
        inner._parameters = {**inner._parameters, "weight": nn.Parameter(self._shifted(weight), False)}
        return inner

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantProjection:
        """On another device the maps are made again."""
        fn = keeping_types(fn)
        self.maps.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def integers(self, x: Tensor) -> Tensor:
        """The input as integers."""
        if self.quantizer is not None:
            p: Tensor = self.quantizer(x)
            return p
        x = plain(x)
        inverse = 1 / self.plan.quantum
        if self.plan.over_time:
            inverse *= self.clock.steps / self.steps
        return counted(x, inverse)

    def border_map(self, x: Tensor) -> Tensor:
        """bq with the input's zero point: b/unit - sum over the taps inside the image of Wq z, [C, ...]; b of
        each position where it has one."""
        key = tuple(x.shape[self.axis :])
        if key not in self.maps:
            self.maps.clear()  # one size at a time: native-size images have many
            bias: Tensor = self.get_buffer("bias")
            if self.plan.places:
                total = bias.reshape(*self.plan.places, -1).movedim(-1, self.axis)
            else:
                total = along(bias, self.axis)
            if self.quantizer is not None:
                total = total - self._inside(x, key)
            self.maps[key] = total if self.plan.bits is None else total.round()
        return self.maps[key]

    def _inside(self, x: Tensor, key: tuple[int, ...]) -> Tensor:
        """Sum over the taps inside the image of Wq z [C, ...]."""
        assert self.quantizer is not None
        inner = copy.deepcopy(self.with_floats()).double()
        zero = self.quantizer.inside.expand(*[1] * (x.dim() - len(key)), *key)
        with torch.no_grad():
            inside: Tensor = inner(zero.contiguous())
        return inside.reshape(inside.shape[self.axis :])

    def forward(self, x: Tensor) -> Tensor:
        refuse_autocast(x.device)
        p = self.integers(x)
        y: Tensor = self.with_floats()(p.to(self.carrier))
        if self.has_map:
            y = y + self.border_map(p).to(y.dtype)
        if self.plan.over_time and self.clock.steps != self.steps:
            y = self.at_other_steps(y)
        if self.coefficient is not None:
            return self.rescale(y)
        if self.plan.decode:
            return (y.double() * self.unit).float()
        return y

    def at_other_steps(self, y: Tensor) -> Tensor:
        """The input sums other steps than at calibration: W x shrinks or grows to the same unit, b stays."""
        bias = along(self.get_buffer("bias"), self.axis)
        out = (y.double() - bias) * (self.steps / self.clock.steps) + bias
        return out if self.plan.role == "output" else round_through(out)

    def rescale(self, y: Tensor) -> Tensor:
        assert self.plan.rescale is not None and self.coefficient is not None
        lo, hi = signed_range(self.plan.rescale.bits)
        out = round_through(y.double() * self.coefficient).clamp(lo, hi).float()
        return out.as_subclass(StreamTensor) if self.plan.role == "stream" else out

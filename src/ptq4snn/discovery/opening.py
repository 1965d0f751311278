"""What runs is what counts: projections whose forward is not simply that of nn.Linear or nn.Conv.

Masked, standardised, normalised or binary weights, parametrizations, pruning, hooks: such a module is
*opened*. Its own code runs operation by operation, as it is written, and its one call of linear or conv goes
to a plain projection inside it, `NAME.plain`, whose weight is the one that arrived there:

    class Masked(nn.Linear):
        def forward(self, x): return 2 * F.linear(x, self.weight * self.mask, self.bias)

    'fc'  ->  2 * 'fc.plain'(x),   fc.plain.weight = fc.weight * fc.mask
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ptq4snn.discovery.editing import CALLS, UNSET, alike, edited_modules, spread
from ptq4snn.discovery.exclusion import GIVEN, advice, is_inside
from ptq4snn.discovery.projection_modules import is_projection
from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.discovery.surgery import copy_model, replace_modules, unwrapped
from ptq4snn.discovery.transposing import Untransposed, is_plain_transposed
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.frameworks import compound_of
from ptq4snn.frameworks.compound import OneToOne

__all__ = ["Opened", "bake", "readable"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
FORWARDS = {kind.forward for kind in (nn.Linear, *CONVOLUTIONS)} | {
    kind._conv_forward for kind in CONVOLUTIONS
}
SETTINGS = ("stride", "padding", "dilation", "groups")


def readable(model: nn.Module, excluded: Collection[str] = (), sharing: bool = False) -> nn.Module:
    """A copy of the user's model, without wrappers, whose projections are all plain or opened; the excluded
    parts stay what they are. `sharing`: the model is a copy already, and both have the same numbers."""
    given = unwrapped(model)
    copy = copy_model(given, given.parameters() if sharing else ())
    setattr(copy, GIVEN, frozenset(name for name, _ in copy.named_modules()))
    while compounds := _compounds(copy, excluded):  # again: a container of neurons may hold compounds
        replace_modules(copy, compounds)
    odd = {
        name: m
        for name, m in copy.named_modules()
        if is_projection(m) and not is_plain(m) and not is_inside(name, excluded)
    }
    if "" in odd:
        raise UnsupportedOperation(
            f"the model itself is a {type(copy).__name__}; put it into a module that holds it and a neuron"
        )
    replace_modules(copy, {name: Opened(m, name) for name, m in odd.items()})
    turned = {
        name: Untransposed(m)
        for name, m in copy.named_modules()
        if name and is_plain_transposed(m) and not is_inside(name, excluded)
    }
    replace_modules(copy, turned)
    return copy


def _compounds(model: nn.Module, excluded: Collection[str]) -> dict[str, nn.Module]:
    """What stands in the place of neurons that are made of several."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if is_inside(name, (*excluded, *found)):
            continue
        made = compound_of(module, name)
        if made is not None and name == "":
            raise UnsupportedOperation(
                f"the model itself is a {type(module).__name__}; put it into a module that holds it"
            )
        if made is not None:
            found[name] = made
    return found


def bake(model: nn.Module, samples: list[Tensor]) -> None:
    """Give the plain projection of every opened module, and what answers the edited calls, the weight that
    arrives there; it must be the same in every call, for all of the samples."""
    opened = [m for m in model.modules() if isinstance(m, Opened)]
    edited = edited_modules(model)
    if (
        not opened
        and not edited
        and not any(isinstance(m, OneToOne) and m.each is None for m in model.modules())
    ):
        return
    for m in opened:
        m.arrivals = []
    for e in edited:
        e._arrivals = {}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for x in samples:
                reset_neurons(model)
                torch.manual_seed(0)
                model(x)
    finally:
        reset_neurons(model)
        for m in opened:
            m.arrivals = None
        for e in edited:
            e._arrivals = None


class Opened(nn.Module):
    """Runs the original module; where that calls linear or conv, `plain` answers."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.name = name
        self.original = (module,)  # in a tuple: what only makes its weight is no part of the quantized model
        self.plain = _plain_like(module)
        self.arrivals: list[tuple[Tensor, Tensor | None]] | None = None  # seen so far, while it is baked

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with _Reroute(self) as route:
            out = self.original[0](*args, **kwargs)
        if route.calls == 0:
            raise self.refusal("calls neither linear nor conv")
        return out

    def refusal(self, what: str) -> UnsupportedOperation:
        return UnsupportedOperation(
            f"'{self.name}', a {type(self.original[0]).__name__}, {what} in its forward; give each call a "
            f"module of its own, or keep it in float: {advice([self.name])}"
        )

    def arrived(self, weight: Tensor, bias: Tensor | None, settings: dict[str, Any]) -> None:
        """Take over what the module's code computed for this call, or refuse."""
        assert self.arrivals is not None
        kind = type(self.original[0]).__name__
        own = {s: getattr(self.plain, s, UNSET[s]) for s in SETTINGS}
        rank = weight.dim() - 2
        same = all(spread(settings[s], rank) == spread(own[s], rank) for s in SETTINGS)
        if weight.shape != self.plain.weight.shape or not same:
            raise UnsupportedOperation(
                f"'{self.name}', a {kind}, convolves or multiplies with another shape, stride, padding, "
                f"dilation or groups than it says; set its attributes to what its forward uses, or keep it "
                f"in float: {advice([self.name])}"
            )
        if self.arrivals and not (alike(self.arrivals[0][0], weight) and alike(self.arrivals[0][1], bias)):
            raise UnsupportedOperation(
                f"the weight of '{self.name}', a {kind}, changes from call to call or with the input, so "
                f"that no integers can stand for it; make it a fixed parameter, or keep it in float: "
                f"{advice([self.name])}"
            )
        if not self.arrivals:
            kept = [None if t is None else t.detach().clone() for t in (weight, bias)]
            self.arrivals.append((kept[0], kept[1]))  # type: ignore[arg-type]
            for which, t in zip(("weight", "bias"), kept, strict=True):
                own_t = None if t is None else nn.Parameter(t, requires_grad=False)
                self.plain.register_parameter(which, own_t)

    def train(self, mode: bool = True) -> Opened:
        self.original[0].train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Opened:
        """The original follows to another device or type."""
        self.original[0]._apply(fn, recurse)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


class _Reroute(TorchFunctionMode):
    """Sends linear and conv to the plain projection of an opened module."""

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self.opened, self.calls = opened, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in CALLS:
            return func(*args, **(kwargs or {}))
        given = {**UNSET, **dict(zip(CALLS[func], args, strict=False)), **(kwargs or {})}
        self.calls += 1
        if self.calls > 1:
            raise self.opened.refusal("calls linear or conv more than once")
        if self.opened.arrivals is not None:
            settings = {s: given[s] for s in SETTINGS}
            self.opened.arrived(given["weight"], given["bias"], settings)
        return self.opened.plain(given["input"])


def is_plain(module: nn.Module) -> bool:
    """Whether calling the module is its class's linear or conv of its own parameters, and nothing else."""
    kind = type(module)
    inherited = (
        kind.forward in FORWARDS and getattr(kind, "_conv_forward", nn.Conv2d._conv_forward) in FORWARDS
    )
    patched = {"forward", "_conv_forward"} & set(vars(module))
    hooks = module._forward_hooks or module._forward_pre_hooks
    owns = isinstance(module._parameters.get("weight"), nn.Parameter) and "bias" in module._parameters
    return (inherited or _steps_only(kind)) and owns and not hooks and not patched


def _steps_only(kind: type) -> bool:
    """SpikingJelly's Linear and Conv, whose forward only folds time into the batch."""
    home = kind.__module__.split(".")
    known = home[0] == "spikingjelly" and "layer" in home
    return known and kind.__name__ in ("Linear", "Conv1d", "Conv2d", "Conv3d")


def _plain_like(module: Any) -> Any:
    """A plain projection of the module's size, on its device; its weight is baked in later."""
    like = next(
        (t for t in [*module.parameters(), *module.buffers()] if t.is_floating_point()), torch.zeros(0)
    )
    where = {"device": like.device, "dtype": like.dtype}
    if isinstance(module, nn.Linear):
        return nn.utils.skip_init(nn.Linear, module.in_features, module.out_features, **where)
    kind = next(k for k in CONVOLUTIONS if isinstance(module, k))
    zeros = module.padding_mode == "zeros"  # else the module pads by itself in front of its convolution
    return nn.utils.skip_init(
        kind, module.in_channels, module.out_channels, module.kernel_size, stride=module.stride,
        padding=module.padding if zeros else 0, dilation=module.dilation, groups=module.groups, **where,
    )  # fmt: skip

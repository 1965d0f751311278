"""Calls in the model's own code, answered by modules that stand beside it (network/edit.py).

    neuron(self.conv(s) + s)        ->   neuron(self.conv(s) + self.shortcut(s)),   weights of one
    self.conv(s) * self.scale       ->   self.affine(self.conv(s)),                 folded like a BatchNorm
    F.linear(s, self.weight)        ->   self.plain(s)
    (x - self.mean) / self.std      ->   x, in the quantized model: its input's grid does the rest
    F.softmax(y, 1)                 ->   y, in the quantized model: the softmax comes behind the decoded y

The module keeps its class's code, its name and its attributes: it gets a subclass whose forward runs under a
mode that looks at every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ptq4snn.discovery.exclusion import advice
from ptq4snn.discovery.sites import Places, innermost_module, is_watched
from ptq4snn.errors import UnsupportedOperation
from ptq4snn.network.edit import MOVED, Edit, EditKind

__all__ = [
    "CALLS", "UNSET", "ChannelAffine", "Edited", "Moved", "alike", "edit_model", "edited_modules",
    "leave_out", "spread",
]  # fmt: skip

CALLS: dict[Callable[..., Tensor], tuple[str, ...]] = {
    nn.functional.linear: ("input", "weight", "bias"),
    **dict.fromkeys(
        (torch.conv1d, torch.conv2d, torch.conv3d),
        ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    ),
}
UNSET = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class ChannelAffine(nn.Module):
    """gain x + shift, one of each for every channel along `axis`, counted from the end."""

    gain: Tensor
    shift: Tensor

    def __init__(self, channels: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.register_buffer("gain", torch.ones(channels, dtype=torch.float64), persistent=False)
        self.register_buffer("shift", torch.zeros(channels, dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shape = [-1, *[1] * (-self.axis - 1)]
        return x * self.gain.to(x).view(shape) + self.shift.to(x).view(shape)


class Moved(nn.Module):
    """A call whose work is done elsewhere in the quantized model; the float model makes it."""

    def __init__(self, kind: EditKind, axis: int) -> None:
        super().__init__()
        self.kind, self.axis, self.left_out = kind, axis, False
        self.constant: Tensor | None = None  # what a position embedding adds, or spikes are multiplied with

    def forward(self, x: Tensor, call: Callable[[], Tensor]) -> Tensor:
        return x if self.left_out else call()


class Edited(nn.Module):
    """Mixed into the class of a module some of whose calls are answered by its children."""

    _edits: dict[int, list[Edit]]  # by place
    _places: Places
    _running: list[Any]
    _arrivals: dict[str, tuple[Tensor, Tensor | None]] | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mode = _Answers(self)
        self._running.append(mode)
        try:
            with mode:
                return super().forward(*args, **kwargs)
        finally:
            self._running.pop()


@cache
def _edited_class(base: type) -> type:
    return type(base.__name__, (Edited, base), {"__module__": base.__module__})


def edit_model(model: nn.Module, edits: Iterable[Edit]) -> None:
    """Make the edits, in place; their children still have to be given their weights (opening.bake)."""
    for e in edits:
        module: Any = model.get_submodule(e.scope)
        if not isinstance(module, Edited):
            kind: type = type(module)
            module.__class__ = _edited_class(kind)
            module._edits, module._places, module._running, module._arrivals = {}, Places(), [], None
        if hasattr(module, e.child):
            raise UnsupportedOperation(f"'{e.path}' is needed as the name of a new layer; rename yours")
        module.add_module(e.child, _child(e).to(_like(module, model)))
        module._edits.setdefault(e.place, []).append(e)


def edited_modules(model: nn.Module) -> list[Edited]:
    return [m for m in model.modules() if isinstance(m, Edited)]


def leave_out(model: nn.Module, kinds: Iterable[str] = MOVED, names: Iterable[str] = ()) -> None:
    """The model from now on without the calls that moved, of these kinds or names."""
    for name, m in model.named_modules():
        if isinstance(m, Moved) and (m.kind in kinds or name in names):
            m.left_out = True


def _like(module: nn.Module, model: nn.Module) -> Tensor:
    """A tensor of the model's type and device."""
    tensors = (t for m in (module, model) for t in (*m.parameters(), *m.buffers()) if t.is_floating_point())
    return next(tensors, torch.zeros(0))


def _child(e: Edit) -> Any:
    if e.kind in MOVED:
        return Moved(e.kind, e.axis)
    if e.kind == "affine":
        return ChannelAffine(e.shape[0], e.axis)
    if e.kind == "shortcut":
        made = nn.utils.skip_init(nn.Conv1d, e.shape[0], e.shape[0], 1, groups=e.shape[0], bias=False)
        made.weight = nn.Parameter(torch.ones(e.shape[0], 1, 1), requires_grad=False)
        return made
    if len(e.shape) == 2:
        return nn.utils.skip_init(nn.Linear, e.shape[1], e.shape[0])
    stride, padding, dilation, groups = e.settings
    kind = CONVOLUTIONS[len(e.shape) - 3]
    return nn.utils.skip_init(
        kind, e.shape[1] * groups[0], e.shape[0], tuple(e.shape[2:]), stride=stride, padding=padding,
        dilation=dilation, groups=groups[0],
    )  # fmt: skip


class _Answers(TorchFunctionMode):
    """Looks at every call while a module's forward runs; those that stand in that forward are counted."""

    def __init__(self, module: Edited) -> None:
        super().__init__()
        self.module = module
        self.turns: Counter[int] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        m = self.module
        if not is_watched(func) or m._running[-1] is not self or innermost_module() is not m:
            return func(*args, **kwargs)
        if func not in CALLS and kwargs.keys() & {"input", "other"}:
            args = (*(kwargs[k] for k in ("input",) if k in kwargs), *args)
            args = (*args, *(kwargs[k] for k in ("other",) if k in kwargs))
            kwargs = {k: v for k, v in kwargs.items() if k not in ("input", "other")}
        place = m._places.number()
        turn = self.turns[place]
        self.turns[place] += 1
        for e in m._edits.get(place, ()):
            if turn % e.period == e.turn:
                return _ANSWERS[e.kind](m, e, func, args, kwargs)
        return func(*args, **kwargs)


def _shortcut(m: Edited, e: Edit, func: Any, args: Any, kwargs: Any) -> Any:
    """The spikes' operand through a projection of weights one."""
    spikes = args[e.operand]
    rows = spikes.reshape(-1, e.shape[0], prod(spikes.shape[spikes.dim() + e.axis + 1 :]))
    made = getattr(m, e.child)(rows).reshape(spikes.shape)
    return func(*_with_argument(args, e.operand, made), **kwargs)


def _affine(m: Edited, e: Edit, func: Any, args: Any, kwargs: Any) -> Any:
    child, x = getattr(m, e.child), args[e.operand]
    if m._arrivals is not None:
        shape = [e.shape[0], *[1] * (-e.axis - 1)]
        zeros = torch.zeros(shape, dtype=torch.float64, device=x.device)
        shift = _on_others(e, func, args, kwargs, zeros)
        gain = _on_others(e, func, args, kwargs, zeros + 1) - shift
        _arrived(m, e, gain.expand(_bare(shape, gain)).flatten(), shift.expand(_bare(shape, shift)).flatten())
        child.gain, child.shift = (t.to(child.gain) for t in m._arrivals[e.child])  # type: ignore[union-attr]
    return child(x)


def _on_others(e: Edit, func: Any, args: Any, kwargs: Any, others: Tensor) -> Tensor:
    """What a sum or a product makes of other numbers in the current's place, in float64."""
    wide = tuple(a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
    name = getattr(func, "__name__", "").strip("_").removeprefix("i")  # not in place
    of = getattr(torch.Tensor, name, func) if name in ("add", "sub", "mul", "div") else func
    made: Tensor = of(*_with_argument(wide, e.operand, others), **kwargs)
    return made


def _bare(shape: list[int], like: Tensor) -> list[int]:
    """The shape with as many leading ones as the result has."""
    return [*[1] * (like.dim() - len(shape)), *shape]


def _plain(m: Edited, e: Edit, func: Any, args: Any, kwargs: Any) -> Any:
    if func in CALLS:
        given = {**UNSET, **dict(zip(CALLS[func], args, strict=False)), **kwargs}
        x, weight, bias = given["input"], given["weight"], given["bias"]
    else:
        x, weight, bias = args[0], args[1].t(), None
    child = getattr(m, e.child)
    if m._arrivals is not None:
        _arrived(m, e, weight, bias)
        for which, t in (("weight", weight), ("bias", bias)):
            own = None if t is None else nn.Parameter(t.detach().clone(), requires_grad=False)
            child.register_parameter(which, own)
    return child(x)


def _moved(m: Edited, e: Edit, func: Any, args: Any, kwargs: Any) -> Any:
    """`1 - x` is called as x and 1: the tensor is the operand where only one is."""
    x = next(a for a in (args[e.operand], *args) if isinstance(a, Tensor))
    if e.kind in ("position", "scale") and m._arrivals is not None:
        like = torch.full_like(x, float(e.kind == "scale"), dtype=torch.float64)
        constant = _on_others(e, func, args, kwargs, like)
        while constant.dim() > 1 and torch.equal(constant, constant[:1].expand_as(constant)):
            constant = constant[0]  # the same for all samples, and at all steps
        _arrived(m, e, constant, None)
        getattr(m, e.child).constant = m._arrivals[e.child][0]
    return getattr(m, e.child)(x, lambda: func(*args, **kwargs))


_ANSWERS = {"shortcut": _shortcut, "affine": _affine, "plain": _plain, **dict.fromkeys(MOVED, _moved)}


def _arrived(m: Edited, e: Edit, weight: Tensor, bias: Tensor | None) -> None:
    """Keep what a call computes with; it must be the same in every call."""
    assert m._arrivals is not None
    kept = weight.detach().clone(), None if bias is None else bias.detach().clone()
    before = m._arrivals.setdefault(e.child, kept)
    if not all(alike(a, b) for a, b in zip(before, kept, strict=True)):
        where = f"in '{e.scope}'" if e.scope else "in the model's forward"
        raise UnsupportedOperation(
            f"what a current is multiplied with or added to {where} changes from call to call or with the "
            f"input, so that no integers can stand for it; make it a fixed parameter, or keep it in float: "
            f"{advice([e.scope])}"
        )


def alike(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def _with_argument(args: Any, place: int, value: Any) -> tuple[Any, ...]:
    return (*args[:place], value, *args[place + 1 :])


def spread(value: Any, rank: int) -> tuple[Any, ...]:
    """A setting of a convolution with one entry for each axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * (rank if len(values) == 1 else 1)

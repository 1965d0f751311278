"""A model whose forward is one time step, with the loop over time outside of it, read as one whole sequence.

`looped(net, loop)` is the net with another forward: called from outside it runs loop(net, x), and inside the
loop a call of the net is a step, as it always was. Module names, hooks and states stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from ptq4snn.discovery.input_types import optional_arguments
from ptq4snn.discovery.resetting import reset_neurons
from ptq4snn.discovery.surgery import copy_model, unwrapped
from ptq4snn.errors import DataError, RecipeError, UnsupportedModel

__all__ = ["Loop", "Looped", "looped", "refuse_forgetful", "repeated"]

Loop = Callable[..., Any]  # (net, x) -> what the sequence gives


class _Kept:
    """The user's callable. Copies of the model share it."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def __deepcopy__(self, memo: dict[int, Any]) -> _Kept:
        return self


class Looped(nn.Module):
    """Mixed into the class of a net that takes one step a call."""

    _kept: _Kept
    _inside: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._inside:
            return super().forward(*args, **kwargs)
        self._inside = True
        try:
            return self._kept.loop(self, *args, **kwargs)
        finally:
            self._inside = False

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """One step, as in the user's own loop."""
        self._inside = True
        try:
            return self(*args, **kwargs)
        finally:
            self._inside = False


@cache
def _looped_class(base: type) -> type:
    return type(base.__name__, (Looped, base), {"__module__": base.__module__})


def looped(model: nn.Module, loop: Loop) -> nn.Module:
    """A copy of the net whose call is the whole loop."""
    if not callable(loop):
        raise RecipeError(f"loop must be a function of the net and its input, not {type(loop).__name__}")
    net = copy_model(unwrapped(model))
    kind: type = type(net)
    net.__class__ = _looped_class(kind)
    net._kept, net._inside = _Kept(loop), False  # type: ignore[assignment]
    return net


def repeated(steps: int, batch_axis: int) -> Loop:
    """The loop of `steps` steps: the same input at every one, or frame t of x[T, B, ...] where the batch
    comes second. Every output is stacked over time."""
    given: Any = steps
    if isinstance(given, bool) or not isinstance(given, Integral) or int(given) < 1:
        raise RecipeError(f"steps must be a whole number of time steps, at least 1, not {steps!r}")

    count = int(given)

    def loop(net: nn.Module, x: Tensor) -> Any:
        if batch_axis == 1 and x.shape[0] != count:
            raise DataError(f"a sample has {x.shape[0]} frames on axis 0, and steps is {count}: give as many")
        outputs = [net(x[t] if batch_axis == 1 else x) for t in range(count)]
        return tree_map(lambda *o: torch.stack(o) if isinstance(o[0], Tensor) else o[0], *outputs)

    loop.of_steps = steps  # type: ignore[attr-defined]
    return loop


def refuse_forgetful(model: nn.Module, x: Tensor, batch_axis: int) -> None:
    """Raise where `steps=` was given for a net that hands its state on by an argument, which nobody gives: it
    would begin from rest at every step."""
    if not isinstance(model, Looped) or getattr(model._kept.loop, "of_steps", 1) < 2:
        return
    names = optional_arguments(super(Looped, model).forward)
    if not names:
        return
    frame = x[0] if batch_axis == 1 else x
    reset_neurons(model)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            pair = [[t for t in tree_flatten(model.step(frame))[0] if isinstance(t, Tensor)] for _ in "ab"]
    except Exception:  # what is wrong is told where the model is followed
        return
    finally:
        reset_neurons(model)
    if all(map(torch.equal, *pair)):
        raise UnsupportedModel(
            f"the model forgets its state from call to call: steps= calls it with its input alone, and it "
            f"hands its state on by an argument ({', '.join(names)}). Give loop=your_function(net, x), which "
            "passes that on"
        )

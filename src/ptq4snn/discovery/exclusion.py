"""Parts of the model that stay as they are: float in, spikes or reals out.

An excluded module is one node of the recorded graph. What goes into it leaves the integers there, what comes
out of it is data, like the model's input. A neuron that is fed by such data alone has no weight whose scale
it could take, so it stays float as well.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from ptq4snn.recipe import Recipe

__all__ = ["advice", "excluded_modules", "is_inside"]


def excluded_modules(model: nn.Module, recipe: Recipe) -> tuple[str, ...]:
    """Names of the modules that the recipe's overrides exclude, without those inside of others."""
    names = [n for n, _ in model.named_modules() if n and recipe.override(n).exclude]
    return tuple(n for n in names if not is_inside(n, [m for m in names if m != n]))


def is_inside(name: str, parts: Collection[str]) -> bool:
    """Whether a module is one of the parts or lies in one."""
    return any(name == p or name.startswith(p + ".") for p in parts)


def advice(names: Collection[str]) -> str:
    """What to write to leave modules out."""
    rules = ", ".join(f'"{n}": {{"exclude": True}}' for n in sorted(names))
    return f"overrides={{{rules}}}"

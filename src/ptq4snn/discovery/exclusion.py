"""Parts of the model that stay as they are: float in, spikes or reals out.

An excluded module is one node of the recorded graph. What goes into it leaves the integers there, what comes
out of it is data, like the model's input. A neuron that is fed by such data alone has no weight whose scale
it could take, so it stays float as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch import nn

from ptq4snn.recipe import Recipe

__all__ = ["GIVEN", "advice", "excluded_modules", "given_names", "is_inside"]

GIVEN = "_given_names"  # attribute of a model whose layers were replaced: the names before that


def excluded_modules(model: nn.Module, recipe: Recipe) -> tuple[str, ...]:
    """Names of the modules that the recipe's overrides exclude, without those inside of others."""
    names = [n for n, _ in model.named_modules() if n and recipe.override(n).exclude]
    return tuple(n for n in names if not is_inside(n, [m for m in names if m != n]))


def is_inside(name: str, parts: Collection[str]) -> bool:
    """Whether a module is one of the parts or lies in one."""
    return any(name == p or name.startswith(p + ".") for p in parts)


def given_names(model: nn.Module, names: Iterable[str]) -> list[str]:
    """The user's own modules that hold modules of these names; "" for what stands in the model itself.

    A layer that was opened, edited or taken apart holds others (`fc.plain`), which the user cannot name.
    """
    given: Collection[str] = getattr(model, GIVEN, ())
    found = []
    for name in names:
        while given and name and name not in given:
            name = name.rpartition(".")[0]
        found.append(name)
    return found


def advice(names: Collection[str]) -> str:
    """What to write to leave modules out."""
    if "" in names:
        return 'move it into a module of its own, say NAME, and give overrides={"NAME": {"exclude": True}}'
    rules = ", ".join(f'"{n}": {{"exclude": True}}' for n in sorted(set(names)))
    return f"overrides={{{rules}}}"

"""The methods of a comparison: a label and the recipe behind it. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptq4snn.errors import RecipeError
from ptq4snn.recipe import Recipe
from ptq4snn.words import ITERATED

__all__ = ["FLOAT", "Method", "find_baseline", "parse_methods"]

FLOAT = "float"
# one observation serves all methods, and a fair comparison protects the same layers
SHARED = (
    "first_bits", "first_membrane", "last_bits", "chain_bits", "calibration", "holdout", "micro_batch",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """What one row of a table shows; without a recipe the float model."""

    label: str
    recipe: Recipe | None
    spec: str  # as the user wrote it

    @classmethod
    def parse(cls, text: str) -> Method:
        """SPEC or LABEL=SPEC, where SPEC is a recipe's words, a .toml file, or "float"."""
        label, equals, spec = text.partition("=")
        if not equals:
            label, spec = text, text
        if not label or not spec:
            raise RecipeError(f"{text!r} is not a method: give a recipe, or LABEL=RECIPE")
        return cls(label, None if spec == FLOAT else Recipe.parse(spec), spec)

    def change(self, changes: Mapping[str, Any]) -> Method:
        """The same method with some fields of its recipe changed."""
        return self if self.recipe is None else replace(self, recipe=self.recipe.replace(**changes))

    def key(self) -> dict[str, Any] | None:
        """What decides its result: every field of the recipe that plays a part in it."""
        if self.recipe is None:
            return None
        fields = self.recipe.to_dict()
        if self.recipe.rounding not in ITERATED:
            del fields["iterations"]
        return fields


def parse_methods(texts: Iterable[str | Method], changes: Mapping[str, Any] | None = None) -> list[Method]:
    """Methods that can be compared: the float model first, labels that differ, one protocol for all."""
    given = [m if isinstance(m, Method) else Method.parse(m) for m in texts]
    methods = [m.change(changes or {}) for m in given]
    if not any(m.recipe for m in methods):
        raise RecipeError("there is nothing to compare with the float model: name a method, such as w4m4")
    floats = [m for m in methods if m.recipe is None]
    methods = [*(floats[:1] or [Method(FLOAT, None, FLOAT)]), *(m for m in methods if m.recipe)]
    labels = [m.label for m in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise RecipeError(f"two methods are called {label!r}: name them apart as LABEL=RECIPE")
    check_shared(methods)
    return methods


def check_shared(methods: Sequence[Method]) -> None:
    first, *others = [m for m in methods if m.recipe is not None]
    for other in others:
        for name in SHARED:
            a, b = (getattr(m.recipe, name) for m in (first, other))
            if a != b:
                raise RecipeError(
                    f"{first.label!r} has {name} {a} and {other.label!r} has {b}: "
                    "methods of one comparison must share it"
                )


def find_baseline(methods: Sequence[Method], name: str) -> Method:
    """The method that --baseline names, by its label or its recipe."""
    for m in methods:
        if name in (m.label, m.spec):
            return m
    raise RecipeError(f"the baseline {name!r} is none of the methods {', '.join(m.label for m in methods)}")


def baseline_of(method: Method, methods: Sequence[Method], chosen: Method | None = None) -> Method | None:
    """What the method is compared with: the chosen one, else 32-bit states with weights rounded alike."""
    if method.recipe is None or method is chosen:
        return None
    if chosen is not None:
        return chosen
    mine = method.recipe
    for m in methods:
        if m.recipe is None or m.recipe.coupling != "none" or m is method:
            continue
        if rounding_of(m.recipe) == rounding_of(mine):
            return m
    return None


def rounding_of(recipe: Recipe) -> tuple[Any, ...]:
    """What decides how weights are rounded. The paper's joint search changes scales on top."""
    steps = recipe.iterations if recipe.rounding in ITERATED else None
    return recipe.rounding, recipe.weights, steps

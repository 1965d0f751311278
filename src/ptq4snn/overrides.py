"""Exceptions from a recipe for the modules whose name matches a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from ptq4snn.errors import RecipeError
from ptq4snn.files import short
from ptq4snn.hints import hint
from ptq4snn.validation import boolean, choice, integer

__all__ = ["COUPLINGS", "Override", "Overrides"]

COUPLINGS = ("none", "reuse", "independent", "layerwise", "flowq", "bridge")


@dataclass(frozen=True)
class Override:
    """What differs for one pattern; None leaves the recipe's value.

    weights: bits of a projection's weights, 2 to 8.
    membrane: bits of every state channel of a neuron: 2, 3, 4, 8 or 16.
    coupling: the neuron's coupling.
    exclude: leave the module, and all that is in it, as it is: float in, spikes or reals out. Such a model is
        simulated, saved and loaded, but there is no integer program of it.
    """

    weights: int | None = None
    membrane: int | None = None
    coupling: str | None = None
    exclude: bool = False

    def __post_init__(self) -> None:
        if self.weights is not None:
            integer("weights", self.weights, 2, 8)
        if self.membrane is not None:
            choice("membrane", self.membrane, (2, 3, 4, 8, 16))
        if self.coupling is not None:
            choice("coupling", self.coupling, COUPLINGS)
        boolean("exclude", self.exclude)

    def to_dict(self) -> dict[str, Any]:
        """Only what differs from the recipe."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}

    def merge(self, later: Override) -> Override:
        """Both overrides; where they disagree, the later one."""
        return Override(**{**self.to_dict(), **later.to_dict()})


class Overrides(Mapping[str, Override]):
    """An immutable mapping of name patterns (`layer3.*`) to overrides, in the order given."""

    def __init__(self, items: Mapping[str, Override] | None = None) -> None:
        self._items = tuple((items or {}).items())

    @classmethod
    def of(cls, spec: Any) -> Overrides:
        """From a mapping of patterns to overrides or to plain mappings."""
        if isinstance(spec, Overrides):
            return spec
        if not isinstance(spec, Mapping):
            raise RecipeError(f"overrides must map name patterns to settings, not {short(repr(spec))}")
        return cls({_pattern(p): _parse(p, rule) for p, rule in spec.items()})

    def match(self, name: str) -> Override:
        """All overrides whose pattern matches `name`, merged; case counts on every platform."""
        out = Override()
        for pattern, rule in self._items:
            if fnmatchcase(name, pattern):
                out = out.merge(rule)
        return out

    def __getitem__(self, pattern: str) -> Override:
        return dict(self._items)[pattern]

    def __iter__(self) -> Iterator[str]:
        return (pattern for pattern, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        # order decides which pattern wins, so it is part of the value
        return isinstance(other, Overrides) and self._items == other._items

    def __repr__(self) -> str:
        return repr({pattern: rule.to_dict() for pattern, rule in self._items})


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str) or not pattern:
        raise RecipeError(
            f"a pattern of overrides must be a module name such as 'layer3.*', not {short(repr(pattern))}"
        )
    return pattern


def _parse(pattern: str, rule: Any) -> Override:
    """One override from a plain mapping; the message of a mistake names the pattern."""
    if isinstance(rule, Override):
        return rule
    where = f"overrides[{short(pattern)!r}]"
    if not isinstance(rule, Mapping):
        raise RecipeError(f"{where} must be a mapping of settings, not {short(repr(rule))}")
    known = [f.name for f in fields(Override)]
    for key in rule:
        if key not in known:
            raise RecipeError(f"{where} has no {short(key)!r}: {hint(key, known, alike=0.5)}")
    try:
        return Override(**rule)
    except RecipeError as e:
        raise RecipeError(f"{where}: {e}") from e

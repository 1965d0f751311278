"""The recipe of a run, so that it can be made again."""

from __future__ import annotations

import json
import pprint
from collections.abc import Mapping
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.recipe import Recipe

__all__ = ["as_python", "as_toml"]


def as_toml(recipe: Mapping[str, Any]) -> str | None:
    """For `quantize --recipe FILE.toml`; None for a recipe that needs None, which TOML does not have."""
    plain = {k: v for k, v in recipe.items() if v is not None}
    try:
        if Recipe.from_dict(plain) != Recipe.from_dict(recipe):
            return None
    except (PTQ4SNNError, TypeError, ValueError):  # of another version
        return None
    overrides = plain.pop("overrides", {})
    lines = [f"{key} = {literal(value)}" for key, value in plain.items()]
    for pattern, rule in overrides.items():
        lines += ["", f"[overrides.{literal(pattern)}]"]
        lines += [f"{key} = {literal(value)}" for key, value in rule.items() if value is not None]
    return "\n".join(lines)


def as_python(recipe: Mapping[str, Any]) -> str:
    """For `ptq4snn.quantize`, which takes any recipe as a dictionary."""
    text = pprint.pformat(dict(recipe), width=90, sort_dicts=False)
    return f"recipe = {text}\nq = ptq4snn.quantize(model, samples, recipe)"


def literal(value: Any) -> str:
    """JSON's texts, numbers, booleans and lists are TOML's too, but for the pairs that stand for an emoji."""
    return json.dumps(value, ensure_ascii=False)

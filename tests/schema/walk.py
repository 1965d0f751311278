"""A JSON value against its type, key by key."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from ptq4snn.schema.report_types import Neuron, Report, Summary

WHOLE = (Neuron, Report, Summary)  # a reader may lack keys of them, what quantizing writes has all
BEFORE_SAVING = {"bundle"}


def keys(kind: Any) -> set[str]:
    return set(get_type_hints(kind))


def needed(kind: Any) -> set[str]:
    return keys(kind) - BEFORE_SAVING if kind in WHOLE else set(kind.__required_keys__)


def differences(value: Any, kind: Any, where: str = "") -> list[str]:
    """What of `value` is not as `kind` says: "place: what"."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return []
    if is_typeddict(kind):
        return _of_keys(value, kind, where)
    if origin in (Union, types.UnionType):
        found = [differences(value, one, where) for one in arguments]
        return [] if [] in found else min(found, key=lambda d: (len(d), d))
    if origin is Literal:
        return [] if value in arguments else [f"{where}: {value!r} is none of {arguments}"]
    if origin in (list, dict):
        if not isinstance(value, origin):
            return [f"{where}: {type(value).__name__} instead of {origin.__name__}"]
        parts = enumerate(value) if origin is list else value.items()
        return [d for name, part in parts for d in differences(part, arguments[-1], f"{where}.{name}")]
    fits = type(value) is kind or (kind is float and type(value) is int)  # a bool is no number
    return [] if fits else [f"{where}: {type(value).__name__} instead of {getattr(kind, '__name__', kind)}"]


def _of_keys(value: Any, kind: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {type(value).__name__} instead of {kind.__name__}"]
    hints = get_type_hints(kind)
    found = [f"{where}.{name}: missing" for name in sorted(needed(kind) - set(value))]
    found += [f"{where}.{name}: unknown" for name in sorted(set(value) - set(hints))]
    return found + [
        d for name in hints if name in value for d in differences(value[name], hints[name], f"{where}.{name}")
    ]

"""Call the user's own code by name: `package.module:factory`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import short

__all__ = ["find_factory", "one_line", "run_factory"]

LONGEST = 500  # characters of a message of the user's code


def find_factory(spec: str) -> Callable[..., Any]:
    """The callable that `package.module:name` names; modules in the working directory are found too."""
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise PTQ4SNNError(f"{short(spec)!r} is not of the form package.module:factory")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script starts with its own folder on the path, not with the user's
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except Exception as e:  # the user's module may raise anything while it is imported
        raise PTQ4SNNError(f"cannot import {short(module_name)}: {type(e).__name__}: {one_line(e)}") from e
    for part in path.split("."):
        if not hasattr(found, part):
            raise PTQ4SNNError(
                f"{module_name} has no {short(path)!r}: name the function that builds the object"
            )
        found = getattr(found, part)
    if not callable(found):
        raise PTQ4SNNError(f"{spec!r} is a {type(found).__name__}, not a function that can be called")
    factory: Callable[..., Any] = found
    return factory


def run_factory(spec: str, factory: Callable[..., Any], *args: object) -> Any:
    """The factory's result; what it raises becomes one sentence that names it."""
    try:
        return factory(*args)
    except PTQ4SNNError:
        raise
    except Exception as e:  # user code
        raise PTQ4SNNError(f"{spec} raised {type(e).__name__}: {one_line(e)}") from e


def one_line(e: BaseException) -> str:
    text = " ".join(str(e).split()) or "no message"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."

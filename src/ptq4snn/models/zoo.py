"""Built-in models by name: those trained here and those that were published."""

from __future__ import annotations

import re

from torch import nn

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.hints import nearest
from ptq4snn.models.entry import Entry, Official
from ptq4snn.models.published import PUBLISHED
from ptq4snn.models.trained import TRAINED

__all__ = ["MODELS", "Entry", "Official", "find", "load_default"]

MODELS: dict[str, Entry] = {**TRAINED, **PUBLISHED}


def folded(name: str) -> str:
    """A name without case, hyphens and underscores: `SDT_2_256_CIFAR10DVS` is sdt-2-256-cifar10-dvs too."""
    return re.sub(r"[-_\s]", "", name.lower())


def find(name: str) -> tuple[str, Entry]:
    """A built-in model and how its name is written; of a misspelt name the nearest is suggested."""
    names = {folded(n): n for n in MODELS}
    found = names.get(folded(name))
    if found is not None:
        return found, MODELS[found]
    near = nearest(folded(name), names)
    about = "`ptq4snn models` lists the built-in ones" if near is None else f"did you mean {names[near]!r}?"
    raise PTQ4SNNError(f"there is no model {name!r} ({about}); name your own as package.module:factory")


def load_default(T: int = 4) -> nn.Module:
    """The embedded default with its trained weights, in evaluation mode."""
    return MODELS["default"].load(T=T)

"""What the figures are made from, once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptq4snn.assemble import Assembly
from ptq4snn.pipeline import rounded, scalings
from ptq4snn.recipe import Recipe


@pytest.fixture(scope="session")
def assembled() -> Callable[[Any], Assembly]:
    """The assembly of a case, built again from its plan's recipe."""

    def build(case: Any) -> Assembly:
        recipe, p = Recipe.parse(case.model.plan.recipe), case.prepared
        return Assembly(rounded(p, next(scalings(p, recipe))[0]))

    return build

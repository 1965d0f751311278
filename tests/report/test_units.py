"""Numbers as people read them, and a recipe that makes itself again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.recipe import Overrides, Recipe
from ptq4snn.report.recipe_text import as_python, as_toml
from ptq4snn.report.units import change, percent, significant, size, smaller


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (512, "512 B"),
        (1024, "1.00 KiB"),
        (411_620, "402 KiB"),
        (44_695_552, "42.6 MiB"),
        (None, "–"),
    ],
)
def test_bytes(value: int | None, text: str) -> None:
    assert size(value).removesuffix(" B") == text.removesuffix(" B")


@given(st.floats(1e-4, 1e9))
def test_three_digits_are_enough_for_a_thousandth(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


def test_other_numbers() -> None:
    assert [significant(v) for v in (4, -3, 0.0, 1234.5, -0.542, 4.77e-8)] == [
        "4", "−3", "0", "1,234", "−0.542", "4.77e-08",
    ]  # fmt: skip
    assert (percent(0.9609375), percent(None)) == ("96.1 %", "–")
    assert [change(v) for v in (0.284, -2.2, 0.001, None)] == ["+0.28", "−2.20", "±0.00", "–"]
    assert (smaller(416, 101), smaller(1, 1), smaller(0, 5), smaller(None, 5)) == ("4.1×", None, None, None)


ODD = {"layer1.*": {"membrane": 8}, 'odd "name"': {"weights": 8}, "né😀": {"membrane": 2}}


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(beta=0.8, percentile=97.0, overrides=Overrides.of(ODD))])
def test_the_recipe_shown_makes_the_same_recipe_again(tmp_path: Path, recipe: Recipe) -> None:
    text = as_toml(recipe.to_dict())
    assert text is not None
    file = tmp_path / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    assert Recipe.from_toml(file) == recipe


def test_what_toml_cannot_say_is_said_in_python() -> None:
    recipe = Recipe.parse("paper+w4m2").replace(overrides=ODD)
    assert recipe.joint is None and as_toml(recipe.to_dict()) is None
    shown = ast.parse(as_python(recipe.to_dict())).body[0]
    assert isinstance(shown, ast.Assign)
    assert Recipe.parse(ast.literal_eval(shown.value)) == recipe
    assert as_toml({"a field of the future": 1}) is None

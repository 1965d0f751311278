"""Which methods can be compared, and with what each is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptq4snn.errors import RecipeError
from ptq4snn.experiments.methods import Method, baseline_of, find_baseline, parse_methods
from ptq4snn.recipe import Recipe


def test_labels_and_recipes(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("membrane = 2\n")
    methods = parse_methods(["w4m4", "Mine=gptq+reuse+uniform+w4m4", f"File={tmp_path}/own.toml"])
    assert [m.label for m in methods] == ["float", "w4m4", "Mine", "File"]
    assert methods[0].recipe is None
    assert methods[2].recipe == Recipe(rounding="gptq", coupling="reuse", allocation="uniform")
    assert methods[3].recipe == Recipe(membrane=2)


def test_changes_reach_every_recipe() -> None:
    methods = parse_methods(["brecq+w4m4", "Base=float", "w4m2"], {"iterations": 7, "first_bits": 4})
    assert [m.label for m in methods] == ["Base", "brecq+w4m4", "w4m2"]
    assert [(m.recipe.iterations, m.recipe.first_bits) for m in methods[1:] if m.recipe] == [(7, 4)] * 2


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["w4m9"], "'w4m9' is not a recipe"),
        (["A="], "is not a method"),
        (["=w4m4"], "is not a method"),
        (["A=w4m4", "A=w4m2"], "two methods are called 'A'"),
        (["float"], "nothing to compare"),
        ([], "nothing to compare"),
    ],
)
def test_refused(texts: list[str], what: str) -> None:
    with pytest.raises(RecipeError, match=what):
        parse_methods(texts)


@pytest.mark.parametrize("field", ["first_bits = 4", "last_bits = 4", "calibration = 64", "holdout = 64"])
def test_one_protocol_for_all(tmp_path: Path, field: str) -> None:
    (tmp_path / "own.toml").write_text(f"{field}\n")
    with pytest.raises(RecipeError, match="must share it"):
        parse_methods(["w4m4", f"{tmp_path}/own.toml"])


def test_each_is_compared_with_its_own_rounding() -> None:
    texts = [
        "fast+w4m32", "G32=gptq+w4m32", "W3=gptq+w3m32", "fast+w4m4", "gptq+w4m4", "gptq+w3m2", "brecq+w4m4",
    ]  # fmt: skip
    methods = parse_methods(texts)
    found = {m.label: b.label for m in methods if (b := baseline_of(m, methods)) is not None}
    assert found == {"fast+w4m4": "fast+w4m32", "gptq+w4m4": "G32", "gptq+w3m2": "W3"}


def test_a_chosen_baseline() -> None:
    methods = parse_methods(["w4m32", "A=w4m4", "gptq+w4m2"])
    chosen = find_baseline(methods, "A")
    assert find_baseline(methods, "w4m4") is chosen  # by its recipe
    labels = [b.label if (b := baseline_of(m, methods, chosen)) else None for m in methods]
    assert labels == [None, "A", None, "A"]
    with pytest.raises(RecipeError, match="'B' is none of the methods"):
        find_baseline(methods, "B")


def test_iterations_count_only_where_there_are_any() -> None:
    def key(spec: str, iterations: int) -> object:
        return Method.parse(spec).change({"iterations": iterations}).key()

    assert key("gptq+w4m4", 5) == key("gptq+w4m4", 6)
    assert key("brecq+w4m4", 5) != key("brecq+w4m4", 6)

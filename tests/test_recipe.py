"""Recipes: presets, TOML, unknown names, ranges, round trips."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptq4snn.errors import RecipeError
from ptq4snn.recipe import Override, Recipe
from ptq4snn.words import CHOICES, OPTIONS, PRESETS


def test_defaults_are_those_of_the_method() -> None:
    r = Recipe()
    assert (r.weights, r.membrane, r.coupling) == (4, 4.0, "bridge")
    assert r == Recipe.parse("best-fast+w4m4")
    assert (r.calibration, r.holdout, r.micro_batch, r.sensitivity_batches) == (1024, 128, 16, "auto")
    assert r.beta_grid == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) and r.percentile_grid == (96.0, 97.0, 98.0, 99.0)
    assert (r.first_bits, r.first_membrane, r.last_bits, r.chain_bits) == (8, 16, 8, 8)
    assert (r.lambda_mem, r.beta, r.percentile, r.seed) == (1.0, None, None, 0)


@pytest.mark.parametrize(
    ("preset", "weights", "membrane", "coupling"),
    [
        ("w4m4", 4, 4.0, "bridge"),
        ("w2m8", 2, 8.0, "bridge"),
        ("w4m32", 4, 32.0, "none"),
        ("w32m4", None, 4.0, "bridge"),
    ],
)
def test_presets(preset: str, weights: int | None, membrane: float, coupling: str) -> None:
    r = Recipe.parse(preset)
    assert (r.weights, r.membrane, r.coupling) == (weights, membrane, coupling)


@pytest.mark.parametrize("text", ["w1m4", "w9m4", "w4m9", "w4", "W4M4X", "w4m4x", "", "w4m16"])
def test_unknown_presets_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="is not a recipe"):
        Recipe.parse(text)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("wieghts", "weights"),
        ("membrane_bits", "membrane"),
        ("betagrid", "beta_grid"),
        ("Coupling", "coupling"),
    ],
)
def test_unknown_keys_name_the_nearest(key: str, nearest: str) -> None:
    calls: tuple[Callable[..., Recipe], ...] = (lambda **k: Recipe.from_dict(k), Recipe().replace)
    for call in calls:
        with pytest.raises(RecipeError) as e:
            call(**{key: 1})
        assert repr(key) in str(e.value) and f"did you mean {nearest!r}?" in str(e.value)


def test_unknown_key_far_from_all_lists_them() -> None:
    with pytest.raises(RecipeError, match=r"known are weights, membrane, .*overrides"):
        Recipe.from_dict({"zzz": 1})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"weights": 1}, "weights must be a number from 2 to 8, not 1; None or 32 keeps float weights"),
    ({"weights": 9}, "weights must be"),
    ({"weights": 8.5}, "weights must be"),
    ({"weights": True}, "weights must be"),
    ({"membrane": 1.99}, 'from 2 to 8, not 1.99; coupling "none" keeps 32-bit states'),
    ({"membrane": 8.01}, "membrane must be"),
    ({"membrane": float("nan")}, "membrane must be"),
    ({"membrane": "4"}, "membrane must be"),
    ({"membrane": 5.0, "allocation": "uniform"}, 'membrane must be 2, 3, 4 or 8 with allocation "uniform"'),
    ({"membrane": float("inf"), "coupling": "none"}, "membrane must be a finite number"),
    ({"coupling": "brige"}, "did you mean 'bridge'?"),
    ({"coupling": None}, "coupling must be one of none, reuse"),
    ({"allocation": "mixed"}, "allocation must be one of fit, uniform, mpba"),
    ({"state_rounding": "up"}, "state_rounding must be"),
    ({"state_rounding": "dither", "coupling": "independent"}, "needs states that are shifted"),
    ({"arithmetic": "int"}, "arithmetic must be one of integer, float"),
    ({"stream": "add"}, "stream must be one of multiply, shift"),
    ({"objective": ""}, "objective must be one of"),
    ({"joint": 1}, "joint must be true or false"),
    ({"lambda_mem": -1}, "lambda_mem must be"),
    ({"first_bits": 16}, "first_bits must be an integer from 2 to 8"),
    ({"first_membrane": 32}, "first_membrane must be one of 2, 4, 8, 16"),
    ({"chain_bits": 4}, "chain_bits must be one of 8, 16"),
    ({"calibration": 0}, "calibration must be an integer of at least 1"),
    ({"micro_batch": 2.5}, "micro_batch must be"),
    ({"seed": -1}, "seed must be"),
    ({"beta": 1.1}, "beta must be a number from 0 to 1"),
    ({"percentile": 101}, "percentile must be"),
    ({"beta_grid": []}, "beta_grid must be a list of numbers"),
    ({"beta_grid": "0.5"}, "beta_grid must be a list"),
    ({"percentile_grid": [96, "97"]}, "every value of percentile_grid"),
    ({"sequential": 1}, "sequential must be true or false"),
    ({"uniform_competes": "yes"}, "uniform_competes must be true or false"),
    ({"correction": "biases"}, "did you mean 'bias'?"),
    ({"zero_point": "tensor"}, "zero_point must be one of none, channel"),
    ({"widths": [2, 3, 4, 8], "allocation": "mpba"}, 'choose allocation "benefit"'),
    ({"widths": [2, 5], "allocation": "benefit"}, "every value of widths must be one of 2, 3, 4, 8"),
    ({"widths": [], "allocation": "benefit"}, "widths must be a list of numbers"),
    ({"widths": [4, 8], "allocation": "benefit", "membrane": 3}, "3 bits cannot be met with widths (4, 8)"),
    ({"agreement": 100.5}, "agreement must be a number from 1 to 100, not 100.5"),
    ({"agreement": 0.97}, "agreement must be a number from 1 to 100, not 0.97"),
    ({"max_drop": -1}, "max_drop must be a number from 0 to 100, not -1"),
    ({"max_drop": True}, "max_drop must be"),
    ({"max_drop": 1, "agreement": 90}, "were both given: a search has one goal"),
    ({"max_drop": 1, "coupling": "none"}, "look for integer weights and states"),
    ({"agreement": 90, "weights": None}, "look for integer weights and states"),
    ({"agreement": 90, "arithmetic": "float"}, "look for integer weights and states"),
    ({"overrides": [1]}, "overrides must map name patterns"),
    (
        {"overrides": {"layer3.*": {"membrain": 8}}},
        "['layer3.*'] has no 'membrain': did you mean 'membrane'?",
    ),
    ({"overrides": {"layer3.*": {"membrane": 5}}}, "overrides['layer3.*']: membrane must be one of"),
    ({"overrides": {"": {"membrane": 8}}}, "a pattern of overrides"),
    ({"overrides": {"fc": 8}}, "overrides['fc'] must be a mapping"),
    (
        {"state_rounding": "dither", "overrides": {"fc": {"coupling": "independent"}}},
        "needs states that are shifted",
    ),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_bad_values_are_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as e:
        Recipe.from_dict(values)
    assert message in str(e.value)
    assert "\n" not in str(e.value)


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "word"), [(f, w) for f, words in CHOICES.items() for w in words])
def test_every_word_sets_its_field_and_no_other(field: str, word: str) -> None:
    found = Recipe.parse(f"w5m2+{word}")
    assert getattr(found, field) == word
    assert found == Recipe(weights=5, membrane=2).replace(**{field: word})


@pytest.mark.parametrize("word", OPTIONS)
def test_every_option_sets_what_it_says(word: str) -> None:
    paper = Recipe.parse("paper+uniform+replay")
    found = Recipe.parse(f"paper+uniform+replay+{word}")
    assert found == paper.replace(**OPTIONS[word])
    assert (found == paper) == (word in ("mixed-only", "one-width", "whole-levels"))  # what the paper does


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("agreement-97", "agreement", 97.0),
        ("fast+Max-Drop-0.5", "max_drop", 0.5),
        ("paper+w4m4+agreement-99.25", "agreement", 99.25),
    ],
)
def test_goals(tmp_path: Path, words: str, field: str, value: float) -> None:
    """In words, as a field, in TOML, in JSON."""
    found = Recipe.parse(words)
    assert getattr(found, field) == value and found.has_goal and not Recipe().has_goal
    assert Recipe.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    (tmp_path / "r.toml").write_text(f"{field} = {value}\n")
    assert Recipe.parse(tmp_path / "r.toml") == Recipe.from_dict({field: value})
    assert found.replace(**{field: None}) == Recipe.parse(words.rpartition("+")[0] or "w4m4")


@pytest.mark.parametrize("text", ["agreement", "agreement-", "agreement-x", "max-drop--1", "max-drop0.5"])
def test_goals_without_a_number_are_no_words(text: str) -> None:
    with pytest.raises(RecipeError, match="is not a recipe"):
        Recipe.parse(text)


def test_no_two_fields_share_a_word() -> None:
    words = [*PRESETS, *OPTIONS, *(w for values in CHOICES.values() for w in values)]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_bits_of_states(bits: int) -> None:
    assert Recipe.parse(f"w4m{bits}").membrane == bits
    assert Recipe.parse(f"w4m{bits}+uniform").allocation == "uniform"


def test_later_words_win() -> None:
    assert Recipe.parse("gptq+brecq").rounding == "brecq"
    assert Recipe.parse("brecq+gptq").rounding == "gptq"
    assert Recipe.parse("w4m4+w3m2").weights == 3 and Recipe.parse("w3m2+w4m4").weights == 4
    assert Recipe.parse("best+fast").rounding == "nearest" and Recipe.parse("fast+best").rounding == "brecq"
    assert Recipe.parse("replay+paper").objective == "squared_error"
    assert Recipe.parse("paper+replay").objective == "replay"
    assert Recipe.parse("layerwise+w4m32").coupling == "none"
    assert Recipe.parse("w4m32+w4m4") == Recipe.parse("w4m4")
    assert Recipe.parse("w4m32+flowq+w4m4").coupling == "flowq"
    assert Recipe.parse("uniform+paper+w4m2+gptq") == Recipe.parse("paper").replace(
        membrane=2, rounding="gptq"
    )


def test_the_paper_is_the_paper_after_any_word() -> None:
    """Every preset and word before it is undone, so that `paper` always means the same."""
    paper = Recipe.parse("paper")
    assert (paper.rounding, paper.coupling, paper.allocation) == ("brecq", "bridge", "mpba")
    assert (paper.objective, paper.state_rounding, paper.sequential) == ("squared_error", "even", False)
    assert (paper.correction, paper.zero_point, paper.widths) == ("none", "none", (2, 4, 8))
    assert not paper.uniform_competes and Recipe().uniform_competes
    assert (
        Recipe.parse("paper+competing").uniform_competes and not Recipe.parse("mixed-only").uniform_competes
    )
    for word in [*PRESETS, *OPTIONS, *(w for values in CHOICES.values() for w in values)]:
        assert Recipe.parse(f"{word}+paper") == paper, word


def test_presets_by_name() -> None:
    for name, rounding in {"fast": "nearest", "default": "sbc", "best": "brecq"}.items():
        assert Recipe.parse(name) == Recipe().replace(rounding=rounding)
        assert Recipe.parse(f"paper+{name}") == Recipe.parse("paper").replace(rounding=rounding)
    for name in PRESETS:
        assert Recipe.parse(f"{name}+w3m2").weights == 3


@pytest.mark.parametrize(
    ("text", "near"),
    [("gtpq", "gptq"), ("w4m4+replya", "replay"), ("w4m4+layer-wise", "layerwise"), ("Papre", "paper"),
     ("benefits", "benefit"), ("squared-error", "squared_error"), ("dithered+w4m4", "dither")],
)  # fmt: skip
def test_a_misspelt_word_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(RecipeError, match="is not a recipe") as e:
        Recipe.parse(text)
    assert f"did you mean {near!r}?" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("text", ["w4m4+", "+w4m4", "w4m4++gptq", "w4m4 + gptq", "w4m4,gptq"])
def test_words_are_joined_by_plus_alone(text: str) -> None:
    with pytest.raises(RecipeError, match="is not a recipe"):
        Recipe.parse(text)


@pytest.mark.parametrize("text", ["dither+independent", "independent+w4m4+dither"])
def test_words_that_contradict_each_other(text: str) -> None:
    with pytest.raises(RecipeError, match="needs states that are shifted"):
        Recipe.parse(text)


def test_new_fields_survive_json() -> None:
    r = Recipe(
        objective="auto", sequential=True, correction="threshold", zero_point="channel", allocation="benefit",
        widths=(8, 3, 2, 3), uniform_competes=True, membrane=2.75,
    )  # fmt: skip
    assert r.widths == (2, 3, 8)
    again = Recipe.from_dict(json.loads(json.dumps(r.to_dict())))
    assert again == r and hash(again) == hash(r)
    assert Recipe.from_dict(json.loads(json.dumps(Recipe.parse("paper").to_dict()))) == Recipe.parse("paper")


@given(st.floats(2, 8))
def test_any_budget_between_is_accepted(budget: float) -> None:
    assert Recipe(membrane=budget, allocation="mpba").membrane == budget


@given(st.floats().filter(lambda b: not 2 <= b <= 8))
def test_every_other_budget_is_refused(budget: float) -> None:
    with pytest.raises(RecipeError):
        Recipe(membrane=budget, allocation="mpba")


def test_coupling_none_ignores_the_budget() -> None:
    assert Recipe(membrane=32, coupling="none").coupling == "none"
    assert Recipe(membrane=5, coupling="none", allocation="uniform").coupling == "none"


def test_float_weights_force_float_arithmetic() -> None:
    assert Recipe(weights=None, arithmetic="integer").arithmetic == "float"
    assert Recipe(weights=32).weights is None
    assert Recipe().arithmetic == "integer"


def test_overrides_match_in_order_and_hash() -> None:
    r = Recipe(overrides={"layer3.*": {"membrane": 8}, "layer3.1.*": {"membrane": 4, "weights": 6}})  # type: ignore[dict-item]
    assert r.override("layer3.0.sn1") == Override(membrane=8)
    assert r.override("layer3.1.sn1") == Override(membrane=4, weights=6)
    assert r.override("Layer3.1.sn1") == Override()
    same = Recipe.from_dict(r.to_dict())
    assert hash(r) == hash(same) and r == same
    swapped = Recipe.from_dict({"overrides": dict(reversed(r.to_dict()["overrides"].items()))})
    assert swapped != r


def test_the_source_mapping_cannot_change_a_recipe() -> None:
    rules = {"fc": {"weights": 8}}
    r = Recipe.from_dict({"overrides": rules})
    rules["fc"]["weights"] = 2
    rules["x"] = {"weights": 2}
    assert r.to_dict()["overrides"] == {"fc": {"weights": 8}}


def test_json_round_trip() -> None:
    r = Recipe(
        weights=None,
        membrane=3.25,
        allocation="mpba",
        beta=0.6,
        percentile=97,
        seed=7,
        beta_grid=(0.5,),
        joint=True,
        overrides={"fc": Override(exclude=True)},
    )
    assert Recipe.from_dict(json.loads(json.dumps(r.to_dict()))) == r


def test_replace_keeps_the_rest_and_checks() -> None:
    r = Recipe(weights=6).replace(membrane=2)
    assert (r.weights, r.membrane) == (6, 2.0)
    with pytest.raises(RecipeError, match="membrane must be"):
        r.replace(membrane=9)


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(
        'weights = 3\nmembrane = 3.5\nallocation = "mpba"\nbeta_grid = [0, 1]\n'
        '[overrides."layer3.*"]\nmembrane = 8\n'
    )
    r = Recipe.parse(str(file))
    assert (r.weights, r.membrane, r.beta_grid) == (3, 3.5, (0.0, 1.0))
    assert r.override("layer3.0.sn1").membrane == 8
    assert Recipe.parse(file) == r


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weights = ", "is not TOML"),
        ("wights = 4", "did you mean 'weights'"),
        ("weights = 1.5", "weights must be"),
    ],
)
def test_bad_toml_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=message) as e:
        Recipe.from_toml(file)
    assert str(file) in str(e.value)


def test_missing_toml(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*nothing\.toml"):
        Recipe.parse(str(tmp_path / "nothing.toml"))


def test_parse_takes_mappings_and_recipes() -> None:
    r = Recipe.parse({"weights": 5})
    assert r.weights == 5 and Recipe.parse(r) is r


@pytest.mark.parametrize("spec", ["W4M4", "w4M2", "Paper+GPTQ+W4m4", "BEST-FAST", "w2m2+Zero-Point"])
def test_capitals_do_not_matter(spec: str) -> None:
    assert Recipe.parse(spec) == Recipe.parse(spec.lower())


DEEP_OR_LONG = [
    "x = " + "[" * 100_000,
    "x=" + "{a=" * 3000,
    "a" * 100_000 + "=1",
    f"rounding = '{'g' * 9000}'",
    f"weights = [{'1,' * 9000}]",
    f"overrides = '{'x' * 9000}'",
    f"[overrides.{'y' * 9000}]\nbits = 3",
    f"[overrides.y]\n{'z' * 9000} = 3",
    "beta_grid = [" + "7," * 9000 + "]",
    f"widths = '{'x' * 9000}'",
]


@pytest.mark.parametrize("text", DEEP_OR_LONG, ids=range(len(DEEP_OR_LONG)))
def test_deep_and_long_toml_is_one_short_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(RecipeError) as e:
        Recipe.from_toml(file)
    assert len(str(e.value)) < 900 and "\n" not in str(e.value)


@pytest.mark.parametrize("spec", ["x" * 9000, "x" * 9000 + ".toml", "w4m4+" + "y" * 9000, "a\0b.toml"])
def test_names_of_recipes_that_cannot_be(spec: str) -> None:
    with pytest.raises(RecipeError) as e:
        Recipe.parse(spec)
    assert len(str(e.value)) < 900

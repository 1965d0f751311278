"""Training recipes: what may be written, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptq4snn.errors import RecipeError
from ptq4snn.models.zoo import MODELS
from ptq4snn.training.training_recipe import Stage, TrainingRecipe, built_in_recipes

TEXT = """
model = "vgg8-32-cifar10"
optimizer = "sgd"

[[stages]]
kind = "rate"
epochs = 3

[[stages]]
epochs = 2
steps = 6
"""


def write(folder: Path, text: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(text)
    return str(path)


def test_a_file(tmp_path: Path) -> None:
    recipe = TrainingRecipe.parse(write(tmp_path, TEXT))
    assert recipe.stages == (Stage("rate", 3), Stage("spiking", 2, steps=6))
    assert (recipe.model, recipe.optimizer, recipe.batch_size) == ("vgg8-32-cifar10", "sgd", 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "speed = 1", "recipe.toml: 'speed' is not a setting: there are epochs, kind"),
        ('modle = "x"', "'modle' is not a setting"),
        ("seed = 3", "model must be named"),
        ('model = "x"\nstages = 3', r"stages must be \[\[stages\]\] tables"),
        ('model = "x"\nstages = []', "at least one"),
        ('model = "x"\noptimizer = "adam"', "optimizer must be one of adamw, sgd, not 'adam'"),
        ('model = "x"\naugmentation = "crop_flip"', "did you mean 'crop-flip'"),
        ('model = "x"\nbatch_size = 0', "batch_size must be an integer of at least 1"),
        (TEXT.replace('"rate"', '"rates"'), "kind must be one of spiking, rate"),
        (TEXT + "warmup = 2", "warmup must be a number from 0.0 to 1.0"),
        (TEXT.replace("epochs = 2", "epochs = 0"), "epochs must be more than 0"),
        ("model = 3", "model must be a name, not 3"),
        ('model = "x"\nclass_weights = "no"', "class_weights must be true or false"),
        ("model = ", "is not a TOML file"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        TrainingRecipe.parse(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        TrainingRecipe.parse(str(tmp_path / "none.toml"))


def test_built_in_recipes_are_of_built_in_models() -> None:
    recipes = built_in_recipes()
    assert recipes
    for name in recipes:
        recipe = TrainingRecipe.parse(name)
        assert recipe.model == name and name in MODELS
        assert recipe.stages[-1].kind == "spiking"  # what is deployed was trained as it runs


def test_a_model_without_a_recipe_of_its_own_gets_the_default() -> None:
    assert TrainingRecipe.parse("sew-resnet18-cifar10") == TrainingRecipe("sew-resnet18-cifar10")


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x=" + "{a=" * 3000, "a" * 100_000 + "=1"])
def test_deep_and_long_toml_is_one_short_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(RecipeError) as e:
        TrainingRecipe.parse(str(tmp_path / "recipe.toml"))
    assert len(str(e.value)) < 900 and "\n" not in str(e.value)

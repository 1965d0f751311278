"""How a model is trained: stages of a rate or spiking network, each with one cosine of the learning rate."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from ptq4snn.errors import RecipeError
from ptq4snn.files import short
from ptq4snn.validation import boolean, choice, integer, number

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["AUGMENTATIONS", "Stage", "TrainingRecipe", "built_in_recipes"]

KINDS = ("spiking", "rate")
OPTIMIZERS = ("adamw", "sgd")
AUGMENTATIONS = ("none", "crop", "crop-flip", "crop-flip-erase")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Stage:
    """kind: "spiking", or "rate", the warm start at the cost of one step (ptq4snn.training.rates).
    epochs: passes over the training split; 0.5 is half of one.
    learning_rate: its peak; warm-up is linear over `warmup` of the steps, the rest is a cosine to 0.
    steps: time steps T of a still image (None: the model's own); a warm start at T = 1 is kind "spiking",
        steps 1. Event recordings keep their frames; a rate stage sees their mean.
    """

    kind: str = "spiking"
    epochs: float = 10
    learning_rate: float = 2e-3
    warmup: float = 0.15
    steps: int | None = None

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        if number("epochs", self.epochs, 0.0) == 0.0:
            raise RecipeError("epochs must be more than 0")
        number("learning_rate", self.learning_rate, 0.0)
        number("warmup", self.warmup, 0.0, 1.0)
        if self.steps is not None:
            integer("steps", self.steps, 1)


@dataclass(frozen=True)
class TrainingRecipe:
    """Every field but the model has a default.

    model: a built-in name (`ptq4snn models`), or package.module:factory, called with T, or without an
        argument for the model's own.
    stages: one after the other, each with a new optimizer, starting from the weights before it.
    optimizer: adamw, or sgd with Nesterov momentum 0.9; weight_decay spares norms and biases.
    augmentation: none, crop (of the input padded by `margin` pixels, the same for all frames), crop-flip,
        crop-flip-erase (a square of a quarter of the side is set to 0, too).
    norm_gain: the norms start at it; LIF neurons that halve their input are silent at 1.
    clip: limit of the gradient's norm, 0 for none.
    average: share of itself that a running average of the weights keeps at every step (0.999: of about a
        thousand steps), 0 for none; the average is what is watched, carried to the next stage and saved.
    precision: bfloat16 multiplies in 16 bits where torch's autocast does (weights, updates and the watch on
        held-out samples stay float32): 1.7 times as fast on a CPU with avx512_bf16, slower without.
    validation: training samples held out to watch the progress; the test split is used once, at the end.
    class_weights: of a segmentation loss: classes weigh the inverse square root of their frequency.
    parts: of every batch, each normalised by itself; processes of torchrun share them. The weights depend on
        it, not on the number of processes.
    start: a checkpoint whose weights the first stage starts from instead of random ones; norm_gain does not
        apply then.
    anew: a module that keeps its random weights then, such as "head" where there are other classes.
    """

    model: str
    stages: tuple[Stage, ...] = (Stage("rate", 15, 4e-3), Stage("spiking", 5, 1.5e-3, 0.05))
    optimizer: str = "adamw"
    weight_decay: float = 0.02
    label_smoothing: float = 0.05
    batch_size: int = 128
    augmentation: str = "crop-flip"
    margin: int = 4
    norm_gain: float = 2.0
    clip: float = 1.0
    average: float = 0.0
    precision: str = "float32"
    validation: int = 1000
    class_weights: bool = False
    seed: int = 0
    parts: int = 1
    start: str = ""
    anew: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise RecipeError(f"model must be a name, not {self.model!r}")
        if not isinstance(self.start, str):
            raise RecipeError(f"start must be a checkpoint's path, not {self.start!r}")
        if not isinstance(self.anew, str) or (self.anew and not self.start):
            raise RecipeError(f"anew must be a module's name, with a start, not {self.anew!r}")
        boolean("class_weights", self.class_weights)
        if not self.stages:
            raise RecipeError("stages must hold at least one [[stages]]")
        choice("optimizer", self.optimizer, OPTIMIZERS)
        choice("augmentation", self.augmentation, AUGMENTATIONS)
        choice("precision", self.precision, PRECISIONS)
        number("weight_decay", self.weight_decay, 0.0)
        number("label_smoothing", self.label_smoothing, 0.0, 0.99)
        number("norm_gain", self.norm_gain, 0.0)
        number("clip", self.clip, 0.0)
        number("average", self.average, 0.0, 0.999999)
        integer("batch_size", self.batch_size, 1)
        integer("parts", self.parts, 1, self.batch_size)
        integer("margin", self.margin, 0)
        integer("validation", self.validation, 0)
        integer("seed", self.seed, 0)

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str) -> TrainingRecipe:
        """A recipe from the tables of a TOML file."""
        values = dict(values)
        try:
            if "stages" in values:
                values["stages"] = tuple(Stage(**known(s, Stage)) for s in values["stages"])
            return cls(**known(values, cls))
        except TypeError as e:
            raise RecipeError(f"{where}: stages must be [[stages]] tables, and model must be named") from e
        except RecipeError as e:
            raise RecipeError(f"{where}: {e}") from e

    @classmethod
    def parse(cls, spec: str) -> TrainingRecipe:
        """A built-in recipe by its model's name, or a .toml file."""
        path = Path(spec)
        if path.suffix == ".toml":
            try:
                return cls.of(tomllib.loads(path.read_text("utf-8")), spec)
            except OSError as e:
                raise RecipeError(f"cannot read the recipe {short(spec)}: {e.strerror or e}") from e
            except ValueError as e:  # not TOML, not text, or a zero byte in its name
                raise RecipeError(f"{short(spec)} is not a TOML file: {short(e)}") from e
            except RecursionError as e:
                raise RecipeError(f"{short(spec)} is nested too deeply: its keys are the settings") from e
        recipes = built_in_recipes()
        if spec in recipes:
            return cls.of(tomllib.loads(recipes[spec]), spec)
        return cls(model=spec)


def known(values: Any, cls: type) -> dict[str, Any]:
    """The table, if all of its keys are fields of the class."""
    if not isinstance(values, Mapping):
        raise TypeError
    names = {f.name for f in fields(cls)}
    for key in values:
        if key not in names:
            raise RecipeError(f"{short(key)!r} is not a setting: there are {', '.join(sorted(names))}")
    return dict(values)


def built_in_recipes() -> dict[str, str]:
    """The text of the recipes in assets/training, by their model's name."""
    folder = files("ptq4snn") / "assets" / "training"
    return {f.name[:-5]: f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".toml")}

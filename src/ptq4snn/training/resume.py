"""What a killed run goes on from: weights, optimizer, average, place."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ptq4snn.data.data_digest import data_digest
from ptq4snn.data.samples import SampleBatches, Samples
from ptq4snn.discovery.model_digest import graph_digest
from ptq4snn.errors import CheckpointError
from ptq4snn.files import short, write_whole
from ptq4snn.hashing import digest, file_digest
from ptq4snn.training.training_recipe import TrainingRecipe

__all__ = ["FILE", "Place", "load_place", "run_identity", "save_place"]

FILE = "resume.pt"
STATES = ("model", "optimizer", "average")


@dataclass
class Place:
    """Where a run is: the next step of a stage, with what was measured so far."""

    stage: int = 0
    step: int = 0  # of the stage
    seconds: float = 0.0  # of training, over all starts
    loss: float = 0.0  # sum over the epoch so far
    log: list[dict[str, Any]] = field(default_factory=list)


def run_identity(recipe: TrainingRecipe, model: nn.Module, samples: Samples, folder: Path) -> str:
    """The hash of the recipe, the model's graph, all samples and the weights it starts from: a run of others
    must not go on from here. Hashes of files are kept in `folder`."""
    start = None
    if recipe.start:
        try:
            start = file_digest(Path(recipe.start))
        except (OSError, ValueError) as e:
            raise CheckpointError(f"there is no checkpoint file {short(recipe.start)} to start from") from e
    data = data_digest(SampleBatches(samples, 64), folder=folder)
    return digest(asdict(recipe), graph_digest(model, samples[[0, 1]][0]), data, start)


def save_place(folder: Path, place: Place, states: dict[str, Any], identity: str) -> None:
    """`states` has those of STATES by their names."""
    content = io.BytesIO()
    torch.save({"place": asdict(place), "identity": identity, **states}, content)
    try:
        write_whole(folder / FILE, content.getvalue())
    except OSError as e:
        raise CheckpointError(f"cannot write to {folder}: is there space left, and is it allowed?") from e


def load_place(folder: Path, identity: str) -> tuple[Place, dict[str, Any]] | None:
    """The place and the states that `save_place` wrote for this recipe, or None where there is nothing."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        saved = torch.load(path, weights_only=True)
        mine = saved.get("identity") == identity
        found = Place(**saved["place"]), {name: saved[name] for name in STATES}
    except Exception as e:  # arbitrary bytes make the parser raise anything
        raise CheckpointError(f"{path} is damaged: delete it to start again") from e
    if not mine:
        raise CheckpointError(
            f"{path} is of another recipe, model, start or data set: choose another --out, or delete it"
        )
    return found

"""What a killed run goes on from: weights, optimizer, place. Written to the side, then moved into place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptq4snn.data.samples import Samples
from ptq4snn.errors import CheckpointError
from ptq4snn.training.recipe import TrainingRecipe

__all__ = ["Place", "fingerprint", "load_place", "save_place"]

FILE = "resume.pt"


@dataclass
class Place:
    """Where a run is: the next step of a stage, with what was measured so far."""

    stage: int = 0
    step: int = 0  # of the stage
    seconds: float = 0.0  # of training, over all starts
    loss: float = 0.0  # sum over the epoch so far
    log: list[dict[str, Any]] = field(default_factory=list)


def fingerprint(recipe: TrainingRecipe, samples: Samples) -> str:
    """Of the recipe and the data (their number and three of them): others must not go on from here."""
    count = len(samples)
    mark = hashlib.sha256(json.dumps([asdict(recipe), count], sort_keys=True).encode())
    for i in (0, count // 2, count - 1):
        for tensor in samples[[i]]:
            mark.update(tensor.contiguous().numpy().tobytes())
    return mark.hexdigest()


def save_place(
    folder: Path, place: Place, model: dict[str, Tensor], optimizer: dict[str, Any], mark: str
) -> None:
    draft = folder / f".{FILE}"
    try:
        torch.save({"place": asdict(place), "model": model, "optimizer": optimizer, "mark": mark}, draft)
        draft.replace(folder / FILE)
    except (OSError, RuntimeError) as e:  # torch's writer has no OSError for a full disk
        draft.unlink(missing_ok=True)
        raise CheckpointError(f"cannot write to {folder}: is there space left, and is it allowed?") from e


def load_place(folder: Path, mark: str) -> tuple[Place, dict[str, Tensor], dict[str, Any]] | None:
    """What `save_place` wrote for this recipe, or None where there is nothing."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        saved = torch.load(path, weights_only=True)
        mine = saved["mark"] == mark
        found = Place(**saved["place"]), saved["model"], saved["optimizer"]
    except Exception as e:  # arbitrary bytes make the parser raise anything
        raise CheckpointError(f"{path} is damaged: delete it to start again") from e
    if not mine:
        raise CheckpointError(f"{path} is of another recipe or data set: choose another --out, or delete it")
    return found

"""The result of a run: weights as safetensors, and a card that says where they come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save
from torch import nn

from ptq4snn.checkpoint.naming import COUNTER
from ptq4snn.files import write_whole
from ptq4snn.schema.score_types import Result
from ptq4snn.training.resume import Place
from ptq4snn.training.training_recipe import TrainingRecipe

__all__ = ["Origin", "card", "headline", "save_weights"]


def save_weights(model: nn.Module, path: Path, recipe: TrainingRecipe, result: Result) -> None:
    """Float32 weights with what was measured in the file's metadata, written whole or not at all."""
    state = {k: v.contiguous().clone() for k, v in model.state_dict().items() if not k.endswith(COUNTER)}
    figures = {k: v for k, v in result.items() if isinstance(v, int | float)}
    # one key: the order of several would differ from file to file
    about = {"training": json.dumps({"result": figures, "recipe": asdict(recipe)}, sort_keys=True)}
    write_whole(path, save(state, about))


def headline(result: Result, what: str = "test samples") -> str:
    """The figures of a test in one phrase."""
    if result.get("mIoU") is not None:
        kind = f"mIoU {result['mIoU']:.2f} %, aAcc {result['aAcc']:.2f} %, mAcc {result['mAcc']:.2f} %"
    else:
        kind = f"{result['accuracy']:.2f} %"
    return f"{kind} on {result['samples']:,} {what}"


@dataclass(frozen=True)
class Origin:
    """Where weights come from."""

    data: str
    command: Sequence[str]
    licence: str | None = None


def card(recipe: TrainingRecipe, model: nn.Module, place: Place, score: str, origin: Origin) -> str:
    """Markdown: command, data, accuracy, time, licence, and the epochs."""
    count = sum(p.numel() for p in model.parameters())
    rows = [
        ("command", f"`{' '.join(origin.command)}`"),
        ("data", origin.data),
        ("parameters", f"{count:,}"),
        ("score", score),
        (
            "chosen",
            f"weights of the last step; {recipe.validation:,} training samples were held out to watch",
        ),
        ("wall time", f"{place.seconds / 60:.0f} min of training, tests apart"),
        ("seed", str(recipe.seed)),
        *([("licence", origin.licence)] if origin.licence else []),
    ]
    lines = [f"# {recipe.model}", "", "| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows), ""]
    lines += ["| stage | epoch | loss | held-out % | minutes so far |", "|---|---|---|---|---|"]
    for e in place.log:
        held = "" if e["validation"] is None else f"{e['validation']:.2f}"
        lines.append(f"| {e['kind']} | {e['epoch']} | {e['loss']:.4f} | {held} | {e['seconds'] / 60:.1f} |")
    return "\n".join(lines) + "\n"

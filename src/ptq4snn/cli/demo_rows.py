"""The demo's table: the embedded default under every coupling as in the paper, then the library's default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.data.source import Batching, open_data
from ptq4snn.errors import DataError
from ptq4snn.evaluation.metrics import evaluate
from ptq4snn.models.zoo import load_default
from ptq4snn.pipeline import prepare, run
from ptq4snn.progress import Progress
from ptq4snn.recipe import Recipe

__all__ = ["SETTINGS", "rows"]

SETTINGS: tuple[tuple[str, str], ...] = (
    ("W4/M32 nearest", "paper+nearest+w4m32"),
    ("W4/M4 reuse", "paper+nearest+reuse+uniform+w4m4"),
    ("W4/M4 flowq", "paper+nearest+flowq+uniform+w4m4"),
    ("W4/M4 layerwise", "paper+nearest+layerwise+uniform+w4m4"),
    ("W4/M4 independent", "paper+nearest+independent+uniform+w4m4"),
    ("W4/M4 bridge", "paper+nearest+uniform+w4m4"),
    ("W4/M4 bridge + MPBA", "paper+nearest+w4m4"),
    ("W4/M32 GPTQ", "w4m32"),
    ("W4/M4, the default", "w4m4"),
    ("W4/M2", "w4m2"),
)
BATCH = 100


def rows(progress: Progress, data: str = "default") -> Iterator[dict[str, Any]]:
    """One row a setting, as soon as it is measured; accuracy in % on `data` (default: embedded images)."""
    calibration = default_sample()[0]
    batches = list(open_data(data, "test", Batching(BATCH)))
    model = load_default()
    recipe = Recipe()
    base = accuracy_of(model, batches, progress)
    prepared = prepare(model, normalize(calibration), recipe, progress=progress)
    for i, (setting, words) in enumerate(SETTINGS):
        q = run(prepared, Recipe.parse(words))
        total = q.report["summary"]
        if i == 0:
            yield {
                "setting": "float",
                "accuracy": base,
                "change": 0.0,
                "average_bits": 32.0,
                "saturation": None,
                "weight_bytes": total["weight_bytes"]["float"],
                "state_bytes": total["state_bytes"]["float"],
            }
        accuracy = accuracy_of(q, batches, progress)
        yield {
            "setting": setting,
            "accuracy": accuracy,
            "change": accuracy - base,
            "average_bits": total["average_bits"],
            "saturation": total["saturation"],
            "weight_bytes": total["weight_bytes"]["quantized"],
            "state_bytes": total["state_bytes"]["packed"],
        }


def accuracy_of(model: nn.Module, batches: Sequence[Any], progress: Progress) -> float:
    found = evaluate(model, batches, progress=progress)["accuracy"]
    if found is None:
        raise DataError("the samples have no labels: the table is about accuracy")
    return found

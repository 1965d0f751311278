"""What the demo measures: two embedded networks, each quantized in several ways on equal weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptq4snn.data.source import Batching, open_data
from ptq4snn.errors import DataError
from ptq4snn.evaluation.record_metrics import evaluation
from ptq4snn.experiments.intervals import paired
from ptq4snn.experiments.scoring import score, unpack
from ptq4snn.forms import inputs_and_labels
from ptq4snn.models.zoo import MODELS
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.pipeline import prepare, run
from ptq4snn.progress import Progress
from ptq4snn.recipe import Recipe
from ptq4snn.schema.score_types import Paired

__all__ = ["BRIEF", "FULL", "NETWORKS", "SETTINGS", "Limits", "Network", "Study"]

Row = dict[str, Any]
DEFAULT = "w4m4"
WAYS = (
    ("reuse", "paper+sbc+reuse+uniform+w4m{}"),
    ("FlowQ", "paper+sbc+flowq+uniform+w4m{}"),
    ("paper", "paper+sbc+w4m{}"),
    ("default", "w4m{}"),
)
# equal weights for all (sbc, the default's); at 2 bits the paper's mixed precision has nothing to mix
SETTINGS: tuple[tuple[str, str], ...] = (
    ("W4/M32", "sbc+w4m32"),
    *((f"W4/M{bits} {name}", words.format(bits)) for bits in (4, 2) for name, words in WAYS),
)
FULL: tuple[tuple[str, str], ...] = (
    *SETTINGS,
    ("W4/M4 layer-wise", "paper+sbc+layerwise+uniform+w4m4"),
    ("W4/M4 independent", "paper+sbc+independent+uniform+w4m4"),
    ("W4/M4 bridge", "paper+sbc+uniform+w4m4"),
    ("nearest W4/M32", "paper+nearest+w4m32"),
    ("nearest W4/M4 reuse", "paper+nearest+reuse+uniform+w4m4"),
    ("nearest W4/M4 FlowQ", "paper+nearest+flowq+uniform+w4m4"),
    ("nearest W4/M4 layer-wise", "paper+nearest+layerwise+uniform+w4m4"),
    ("nearest W4/M4 independent", "paper+nearest+independent+uniform+w4m4"),
    ("nearest W4/M4 bridge", "paper+nearest+uniform+w4m4"),
    ("nearest W4/M4 paper", "paper+nearest+w4m4"),
)
BATCH = 100


@dataclass(frozen=True)
class Network:
    """One of the demo's networks; `model` and `data` are embedded."""

    model: str
    data: str
    samples: str  # what they are called
    about: str


NETWORKS = (
    Network(
        "default",
        "default",
        "images",
        "SEW-ResNet on CIFAR-10, T = 4, hard reset: states are forgotten at every spike, 4 bits are easy",
    ),
    Network(
        "vgg4-16-nmnist-slow",
        "nmnist-sample",
        "recordings",
        "VGG on N-MNIST, T = 25, soft reset, leak 0.95: states pile up, and how they are scaled decides",
    ),
)


@dataclass(frozen=True)
class Limits:
    """Embedded samples that are used, at most; None: all."""

    calibration: int | None = None
    test: int | None = None


BRIEF = Limits(128, 500)  # two minutes of one core for all


class Study:
    """A network, its samples, and what `rows` found: `default` is then the library's own W4/M4."""

    def __init__(
        self, network: Network, limits: Limits, progress: Progress, test_data: str | None = None
    ) -> None:
        self.network, self.progress = network, progress
        entry = MODELS[network.model]
        calibration = Batching(BATCH, count=limits.calibration)
        self.calibration = torch.cat(
            list(open_data(network.data, "calibration", calibration, entry.preprocessing))  # type: ignore[arg-type]
        )
        self.data, self.limit = (network.data, limits.test) if test_data is None else (test_data, None)
        test = Batching(BATCH, count=self.limit)
        self.test = list(open_data(self.data, "test", test, entry.preprocessing, entry.data))
        if any(inputs_and_labels(batch)[1] is None for batch in self.test):
            raise DataError("the test samples have no labels: the demo is about accuracy")
        self.model = entry.load()
        self.default: QuantizedModel | None = None

    @property
    def samples(self) -> int:
        """Test samples."""
        return sum(len(batch[0]) for batch in self.test)

    def rows(self, settings: Sequence[tuple[str, str]]) -> Iterator[Row]:
        """One row a setting, as soon as it is measured, the float network first; accuracy in %.

        change is that from float, error half its 95 % interval: the same samples, paired.
        """
        before = score(self.model, self.test, 0, None, self.progress)
        expected = right(before)
        prepared = prepare(self.model, self.calibration, Recipe(), progress=self.progress)
        for i, (setting, words) in enumerate(settings):
            q = run(prepared, Recipe.parse(words))
            total = q.report["summary"]
            if i == 0:
                yield {
                    "setting": "float",
                    "recipe": None,
                    "accuracy": before["accuracy"],
                    "change": 0.0,
                    "error": None,
                    "average_bits": 32.0,
                    "saturation": None,
                    "weight_bytes": total["weight_bytes"]["float"],
                    "state_bytes": total["state_bytes"]["float"],
                }
            found = score(q, self.test, 0, None, self.progress)
            if words == DEFAULT:
                q.report["evaluations"] = [evaluation(self.data, self.limit, found, before)]
                self.default = q
            interval = paired([right(found)], [expected])
            yield {
                "setting": setting,
                "recipe": words,
                "accuracy": found["accuracy"],
                "change": interval.change,
                "error": interval.high - interval.change,
                "average_bits": total["average_bits"],
                "saturation": total["saturation"],
                "weight_bytes": total["weight_bytes"]["quantized"],
                "state_bytes": total["state_bytes"]["packed"],
            }


def right(found: Paired) -> Tensor:
    """Which test samples a model got right, bool [n]."""
    assert found["right"] is not None  # there are labels
    return unpack(found["right"], found["samples"])

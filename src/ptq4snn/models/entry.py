"""What is known of a built-in model: how to build it, the data it is for, where its weights come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from ptq4snn.data.samples import Preprocessing
from ptq4snn.errors import CheckpointError

__all__ = ["WEIGHTS", "Entry", "Official"]

ASSETS = Path(__file__).resolve().parents[1] / "assets"
WEIGHTS = ASSETS.parents[2] / "weights"  # of the repository: not in the wheel


@dataclass(frozen=True)
class Official:
    """The authors' own weights, which `--checkpoint` reads."""

    repository: str
    file: str | None = None  # as published; None: the authors gave no weights
    accuracy: float | None = None  # % that the authors report
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """A built-in model: `build(**settings | changes)`, for the data set `data`."""

    build: Callable[..., nn.Module]
    settings: dict[str, Any]
    data: str  # name of a data set (ptq4snn.data.source)
    input: tuple[int, ...]  # shape of one sample, [C, H, W] or [T, C, H, W]
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    checkpoint: str | None = None  # file of trained weights, in assets/ or in WEIGHTS
    official: Official | None = None

    @property
    def steps(self) -> int:
        """Time steps T."""
        default: int = signature(self.build).parameters["T"].default
        return int(self.settings.get("T", default))

    def make(self, **changes: Any) -> nn.Module:
        """The model, with random weights."""
        return self.build(**{**self.settings, **changes})

    def load(self, **changes: Any) -> nn.Module:
        """The model with its trained weights, in evaluation mode; without any where it has none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        model = self.make(**changes)
        if self.checkpoint is not None:
            weights = self.weights()
            if weights is None:
                raise CheckpointError(
                    f"the weights {Path(self.checkpoint).name} are not installed: {self.elsewhere()}"
                )
            try:  # counters of BatchNorm are not stored
                missing, unknown = model.load_state_dict(load_file(weights), strict=False)
            except RuntimeError as why:
                raise CheckpointError(
                    f"the trained weights {weights.name} do not fit a model with {changes}: give --checkpoint"
                ) from why
            except (SafetensorError, OSError) as why:
                raise CheckpointError(f"{weights} is damaged: copy or install it again") from why
            assert not unknown and all(name.endswith("num_batches_tracked") for name in missing)
        return model.eval()

    def weights(self) -> Path | None:
        """The file of the trained weights; None where there is none, or not here."""
        if self.checkpoint is None:
            return None
        places = (ASSETS / self.checkpoint, WEIGHTS / self.checkpoint)
        return next((place for place in places if place.is_file()), None)

    def elsewhere(self) -> str:
        """How to come by weights that are not here."""
        return f"take {WEIGHTS.name}/{self.checkpoint} of the source repository and give --checkpoint FILE"

    def score(self) -> float | None:
        """What the trained weights reach on the test data: accuracy, or mIoU of segmentation, in %.

        It is noted with the weights: None where they are not here.
        """
        about = self.metadata()
        result = json.loads(about.get("training", "{}")).get("result", about)
        value = result.get("accuracy", result.get("mIoU"))
        return None if value is None else float(value)

    def metadata(self) -> dict[str, str]:
        """What was noted with the trained weights."""
        from safetensors import safe_open

        weights = self.weights()
        if weights is None:
            return {}
        with safe_open(weights, "pt") as file:
            return dict(file.metadata() or {})

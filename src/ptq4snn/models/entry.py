"""What is known of a built-in model: how to build it, the data it is for, where its weights come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from inspect import signature
from typing import Any

from torch import nn

from ptq4snn.data.samples import Preprocessing

__all__ = ["Entry", "Official"]


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
    checkpoint: str | None = None  # file of trained weights in assets/
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
        """The model with its trained weights, in evaluation mode."""
        from safetensors.torch import load_file

        model = self.make(**changes)
        if self.checkpoint is not None:
            with as_file(files("ptq4snn") / "assets" / self.checkpoint) as path:
                model.load_state_dict(load_file(path), strict=False)  # counters of BatchNorm are not stored
        return model.eval()

    def score(self) -> float | None:
        """What the trained weights reach on the test data: accuracy, or mIoU of segmentation, in %."""
        about = self.metadata()
        result = json.loads(about.get("training", "{}")).get("result", about)
        value = result.get("accuracy", result.get("mIoU"))
        return None if value is None else float(value)

    def metadata(self) -> dict[str, str]:
        """What was noted with the trained weights."""
        from safetensors import safe_open

        if self.checkpoint is None:
            return {}
        with as_file(files("ptq4snn") / "assets" / self.checkpoint) as path, safe_open(path, "pt") as file:
            return dict(file.metadata() or {})

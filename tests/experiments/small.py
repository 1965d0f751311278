"""A small network with its data, and a protocol of few samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ptq4snn.experiments.bench import Bench, Conditions

FEW: dict[str, Any] = {"calibration": 32, "holdout": 16, "sensitivity_batches": 1}


@dataclass
class Case:
    model: nn.Module
    pool: Tensor  # calibration samples to draw from
    test: list[tuple[Tensor, Tensor]]

    def bench(self, folder: Path, **options: Any) -> Bench:
        return Bench.of(self.model, self.pool, self.test, folder, Conditions(**options))

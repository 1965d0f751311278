"""Random models as C."""

from __future__ import annotations

from typing import Any

from export.harness import Case, case
from runtime.programs import random_input, random_model


def random_case(seed: int, **options: Any) -> Case:
    """Still images run some steps more than at calibration; every fifth goes over all inputs."""
    model = random_model(seed, operations=5, work=1500)
    steps = model.program.steps + (seed % 3 if model.program.input.time_axis is None else 0)
    chosen = {"path": "dense" if seed % 5 == 4 else "event", **options}
    return case(model, f"m{seed}", random_input(model, seed, 1), steps, **chosen)

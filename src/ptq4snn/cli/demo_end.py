"""How the demo ends: the default's bundle with its report and page, and its speed beside torch's."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import torch

from ptq4snn.cli.demo_rows import Study
from ptq4snn.cli.quantize import save
from ptq4snn.discovery.discover import reset_neurons
from ptq4snn.runtime import load
from ptq4snn.runtime.measure import interleave, processor

__all__ = ["speed", "written"]

ROUNDS = 11


def written(study: Study, folder: Path) -> list[Path]:
    """Bundle, report and page of the default W4/M4, all or none."""
    assert study.default is not None  # one of all settings
    folder.mkdir(exist_ok=True)
    return save(study.default, folder / f"{study.network.model}.ptq")


def speed(study: Study, bundle: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """Milliseconds of one sample in torch and in the packed runtime, on one thread, taking turns."""
    rt = load(bundle)  # one thread unless told
    x: torch.Tensor = study.test[0][0][:1]
    image = x.numpy()

    def network() -> None:
        with torch.no_grad():
            study.model(x)
        reset_neurons(study.model)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = interleave({"torch": network, "runtime": lambda: rt(image)}, rounds)
    finally:
        torch.set_num_threads(threads)
    return {
        "float_ms": 1e3 * median(times["torch"]),
        "runtime_ms": 1e3 * median(times["runtime"]),
        "ratio": median(a / b for a, b in zip(times["torch"], times["runtime"], strict=True)),
        "kernels": rt.kernels,
        "processor": processor(),
        "threads": 1,
    }

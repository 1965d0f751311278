"""What is measured: trained checkpoints, and published shapes tuned to a firing rate.

A case lies in a folder of its own once it is quantized: the bundle, and the samples it is timed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.errors import BundleError, DataError
from ptq4snn.models.trained import TRAINED
from ptq4snn.modules.quantized import QuantizedModel
from runtime_parts.networks import images, sdt_2_256, sew_resnet8, sew_resnet18, typical_first

SIMULATED = {"cifar10-dvs-sim": "cifar10"}  # made from the images of
RATES = (0.05, 0.10, 0.15, 0.20)
SDT_RATE = 0.17
WIDTHS = (8, 16, 24, 32, 48)  # channels of narrow layers
MAIN = "sew-resnet18, 15 %"  # memory, scaling and layers are shown for it
TIMED = 32  # samples that a case is checked on, and timed on in part
# biases corrected, so that the quantized network fires at the target as well
SYNTHETIC = "nearest+uniform+squared_error+bias+w4m4"
FEW = {"holdout": 16, "sensitivity_batches": 1, "sequential": False, "zero_point": "none"}


@dataclass(frozen=True)
class Case:
    """`data` names the data set of a trained model; `target` is the rate of a synthetic one."""

    name: str
    build: Callable[[], nn.Module]
    data: str | None = None
    target: float | None = None
    calibration: int = 64
    first_membrane: int = 16


def synthetic() -> list[Case]:
    cases = [Case(f"sew-resnet18, {100 * r:.0f} %", partial(sew_resnet18, r), target=r) for r in RATES]
    return [*cases, Case(f"sdt-2-256, {100 * SDT_RATE:.0f} %", partial(sdt_2_256, SDT_RATE), target=SDT_RATE)]


def trained() -> list[Case]:
    few = {"camvid": 16, "nmnist": 32, "cifar10-dvs-sim": 32}  # large images, many steps
    return [
        Case(name, entry.load, data=entry.data, calibration=few.get(entry.data, 128))
        for name, entry in TRAINED.items()
    ]


def narrow() -> list[Case]:
    """Small residual networks with the same few channels in every layer."""
    return [
        Case(f"{width} channels, 15 %", partial(sew_resnet8, 0.15, width), target=0.15, calibration=32)
        for width in WIDTHS
    ]


def narrow_stem() -> Case:
    """The main shape with 4 bits for the stem's state as well."""
    return Case("sew-resnet18, 15 %, stem 4", partial(sew_resnet18, 0.15), target=0.15, first_membrane=4)


@dataclass(frozen=True)
class Ready:
    """A case that can be run."""

    case: Case
    model: nn.Module
    quantized: QuantizedModel
    bundle: Path
    x: Tensor  # [TIMED, ...], the most typical ones first
    samples: str  # what x is


def ready(case: Case, folder: Path, places: dict[str, str]) -> Ready:
    """The case quantized, from its folder if it was before."""
    model = case.build()
    x, origin = samples_of(case, "test", TIMED, places)
    place = folder / case.name.replace(" ", "").replace(",", "-").replace("%", "")
    place.mkdir(parents=True, exist_ok=True)
    bundle = place / "model.ptq"
    try:
        quantized = ptq4snn.load(bundle, model)
    except (BundleError, OSError):
        calibration, _ = samples_of(case, "calibration", case.calibration, places)
        options: dict[str, Any] = {"calibration": case.calibration, "first_membrane": case.first_membrane}
        recipe = "w4m4" if case.target is None else SYNTHETIC
        options |= {} if case.target is None else FEW
        ptq4snn.quantize(model, calibration, recipe, **options).save(bundle)
        quantized = ptq4snn.load(bundle, model)
    return Ready(case, model, quantized, bundle, typical_first(quantized, x), origin)


def samples_of(case: Case, split: str, count: int, places: dict[str, str]) -> tuple[Tensor, str]:
    """Samples and what they are: of the data set if its place is given, of the embedded images, or random."""
    if case.data is None or (case.data == "cifar10" and "cifar10" not in places):
        return images(count, split == "test"), "CIFAR-10 images"
    entry = TRAINED[case.name]
    place = places.get(SIMULATED.get(case.data, case.data))
    if place is None:
        g = torch.Generator().manual_seed(count)
        return (torch.rand(count, *entry.input, generator=g) < 0.05).float(), "random events"
    found = open_samples(f"{entry.data}:{place}", split, entry.preprocessing, entry.data)  # type: ignore[arg-type]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))[:count].tolist()
    batch = next(iter(SampleBatches(found, count, indices=order)), None)
    if batch is None:
        raise DataError(f"{place} holds no samples")
    return batch[0].float(), f"{entry.data} {split} samples"

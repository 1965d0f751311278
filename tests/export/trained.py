"""The trained models of the repository as bundles, calibrated on what needs no data set."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.models.trained import TRAINED
from ptq4snn.runtime.loading import load_model_file
from ptq4snn.runtime.parameters import Model

RECIPE = "nearest+uniform+w4m4"


def inputs(name: str, count: int, seed: int = 0) -> Tensor:
    """Embedded images, as large as the model takes them, or frames of few events."""
    shape = TRAINED[name].input
    if len(shape) == 4:
        g = torch.Generator().manual_seed(seed)
        return torch.poisson(torch.full((count, *shape), 0.3), generator=g)
    images = normalize(default_sample()[0][seed * count : (seed + 1) * count])
    return images if shape[1:] == images.shape[2:] else F.interpolate(images, size=shape[1:])


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@functools.cache
def trained_bundle(name: str) -> Path:
    """Quantized once, with a handful of samples: what it computes is to be compared, not how well."""
    path = Path(_folder().name) / f"{name}.ptq"
    few = 4 if name == "sdt-fpn-16-camvid" else 16
    q = ptq4snn.quantize(
        TRAINED[name].load(), inputs(name, few), RECIPE, progress=False, holdout=few // 2, calibration=few
    )
    q.save(path)
    return path


def trained_model(name: str) -> Model:
    return load_model_file(trained_bundle(name))

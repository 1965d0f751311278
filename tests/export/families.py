"""Small networks of every built-in family, recurrent and two-state ones, as programs that exporters take."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import conftest
import numpy as np
from models.test_quantized_backbones import calibrated, samples
from oracles.meta_spikeformer import pixels, small
from rounding.families import MODELS
from torch import Tensor, nn

from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe
from ptq4snn.runtime import model_of
from ptq4snn.runtime.parameters import Model

RECIPE = Recipe.parse("nearest+uniform+w4m4").replace(calibration=8, holdout=4, objective="squared_error")


@dataclass(frozen=True)
class Family:
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]


def built_in(name: str) -> Family:
    make, size = MODELS[name]
    return Family(make, lambda n: conftest.pixels(n, size, 7))


def backbone(name: str) -> Family:
    return Family(lambda: calibrated(name), lambda n: samples(name, n, 7))


def graph(name: str) -> Family:
    """A network of NIR: recurrent, or with a state of the synapse, or both."""
    from interchange import test_nir as nets

    import ptq4snn

    def make() -> nn.Module:
        return ptq4snn.from_nir(nets.GRAPHS[name](), dt=nets.DT, reset="subtract")

    return Family(make, lambda n: nets.samples(nets.GRAPHS[name](), n))


FAMILIES: dict[str, Callable[[], Family]] = {
    "SEW-ResNet": lambda: built_in("sew"),
    "VGG": lambda: built_in("vgg"),
    "SDT": lambda: built_in("sdt"),
    "Meta-SpikeFormer": lambda: Family(lambda: small("plain"), pixels),
    "FPN": lambda: Family(lambda: small("fpn"), pixels),
    "Spikformer": lambda: backbone("spikformer_linear"),
    "Spikformer of events": lambda: backbone("spikformer_conv1d"),
    "QKFormer": lambda: backbone("qkformer_cifar"),
    "recurrent": lambda: graph("recurrent lif"),
    "two states": lambda: graph("cuba"),
    "recurrent, two states": lambda: graph("recurrent cuba"),
    "feedback": lambda: graph("feedback"),
}


@functools.cache
def family(name: str) -> tuple[Model, np.ndarray[Any, Any]]:
    """The program, and two inputs that it was not calibrated with."""
    one = FAMILIES[name]()
    x = one.inputs(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = run(prepare(one.build(), x[:8], RECIPE), RECIPE)
    assert q.program is not None, q.not_lowered
    return model_of(q.program, q.plan, q.integers), x[8:].numpy()

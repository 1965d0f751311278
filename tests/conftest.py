"""What many tests need: one thread, a small network, images on a pixel grid, a network already observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from ptq4snn.models.neuron import LIF
from ptq4snn.models.sew_resnet import SEWResNet

if TYPE_CHECKING:
    from ptq4snn.pipeline import Prepared

# a busy machine must not fail a test, and a failure must come again
settings.register_profile("ptq4snn", deadline=None, derandomize=True)
settings.load_profile("ptq4snn")

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def lively(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random BatchNorm statistics and gains of 2, so that an untrained network fires in every layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 2.0)
                nn.init.normal_(m.bias, 0.0, 0.3)
                assert m.running_mean is not None and m.running_var is not None
                nn.init.normal_(m.running_mean, 0.0, 0.3)
                nn.init.uniform_(m.running_var, 0.2, 1.0)
    return model.eval()


def build(T: int = 4, seed: int = 0, neuron: Callable[[], nn.Module] = LIF) -> SEWResNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SEWResNet(widths=(8, 16), blocks=(1, 1), strides=(2, 2), stem=8, T=T, neuron=neuron)
    lively(model, seed)
    return model


def pixels(n: int, size: int = 12, seed: int = 0) -> Tensor:
    """Images of 8 bits, normalised as CIFAR-10 is."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, 3, size, size), generator=g).float() / 255
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


@pytest.fixture(scope="session")
def small_model() -> Callable[..., SEWResNet]:
    """build(T=4, seed=0, neuron=LIF): a SEW-ResNet of two blocks."""
    return build


@pytest.fixture(scope="session")
def images() -> Callable[..., Tensor]:
    """images(n, size=12, seed=0): normalised 8-bit images [n, 3, size, size]."""
    return pixels


@pytest.fixture(scope="session")
def observed() -> Prepared:
    """The small network, folded and observed on 32 of 64 images. Read only."""
    from ptq4snn.pipeline import prepare  # here, so that tests of single parts do not import the whole
    from ptq4snn.recipe import Recipe

    return prepare(build(), pixels(64), Recipe(holdout=16, sensitivity_batches=1))

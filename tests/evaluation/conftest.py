"""Small networks, quantized once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.models.neuron import IF, LIF, PLIF
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.pipeline import Prepared, prepare, run
from ptq4snn.recipe import Recipe

PAPER = Recipe.parse("paper+nearest")


@dataclass
class Case:
    prepared: Prepared
    model: QuantizedModel


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Twice(nn.Module):
    """Soft reset, a resting potential, a leak that is not dyadic, a neuron that runs twice in a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.sn1 = nn.Linear(6, 10), LIF(tau=3.0, v_threshold=0.9, v_reset=-0.1)
        self.fc2, self.sn2 = nn.Linear(10, 7), PLIF(init_tau=2.7, v_threshold=0.5, v_reset=None)
        self.fc3, self.unused = nn.Linear(7, 4), nn.Linear(2, 2)
        self.idle = LIF()

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 6]
        halves = [self.fc1(x[:, i]).expand(5, -1, -1) for i in range(2)]
        y = self.sn1(halves[0]) + self.sn1(halves[1])
        logits: Tensor = self.fc3(self.sn2(self.fc2(y))).mean(0)
        return logits


class Summed(nn.Module):
    """A membrane shortcut: sn2 reads the sum of two projections."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.sn1 = nn.Linear(6, 8), LIF()
        self.fc2, self.fc3, self.sn2 = nn.Linear(8, 5), nn.Linear(8, 5), LIF()
        self.fc4 = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.sn1(self.fc1(x).expand(4, -1, -1))
        logits: Tensor = self.fc4(self.sn2(self.fc2(y) + self.fc3(y))).mean(0)
        return logits


class Pixelwise(nn.Module):
    """A small segmentation: logits [B, 4, H/2, W/2] of images [B, 3, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.sn1 = nn.Conv2d(3, 6, 3, 2, 1), LIF()
        self.conv2, self.sn2 = nn.Conv2d(6, 8, 3, 1, 1), LIF()
        self.head = nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            self.conv2.weight.mul_(6)  # sn2 fires, and spikes decide more than biases
            self.head.weight.mul_(3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.sn1(self.conv1(x).expand(4, -1, -1, -1, -1)).flatten(0, 1)
        y = self.sn2(self.conv2(y).unflatten(0, (4, -1))).flatten(0, 1)
        logits: Tensor = self.head(y).unflatten(0, (4, -1)).mean(0)
        return logits


class Still(nn.Module):
    """A single time step."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.sn1, self.fc2, self.sn2 = nn.Linear(6, 8), LIF(), nn.Linear(8, 5), LIF()
        self.fc3 = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.sn2(self.fc2(self.sn1(self.fc1(x).unsqueeze(0))))
        logits: Tensor = self.fc3(y).mean(0)
        return logits


class Merged(nn.Module):
    """sn2 sees time and batch on one axis, as the last neuron of QKFormer's attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.sn1 = nn.Linear(6, 8), LIF()
        self.fc2, self.sn2 = nn.Linear(8, 5), LIF()
        self.fc3 = nn.Linear(5, 3)
        with torch.no_grad():
            self.fc2.weight.mul_(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc2(self.sn1(self.fc1(x).expand(4, -1, -1)))
        y = self.sn2(y.flatten(0, 1).unsqueeze(1)).squeeze(1).unflatten(0, (4, -1))
        logits: Tensor = self.fc3(y).mean(0)
        return logits


class Fading(nn.Module):
    """sn2 needs seven steps of input to fire: with the weight's own scale its state never gets there."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.sn1 = nn.Linear(3, 4), LIF()
        self.fc2, self.sn2 = nn.Linear(4, 4), IF()
        self.fc3 = nn.Linear(4, 2)
        with torch.no_grad():
            self.fc1.bias.fill_(4.0)
            self.fc1.weight.mul_(0.1)
            self.fc2.weight.copy_(0.15 * torch.eye(4))
            self.fc2.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        y = self.sn1(self.fc1(x).expand(8, -1, -1))
        logits: Tensor = self.fc3(self.sn2(self.fc2(y))).mean(0)
        return logits


def sew() -> SEWResNet:
    model = SEWResNet(widths=(8, 16), blocks=(1, 1), strides=(2, 2), stem=8, T=4)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.fill_(2.0)
            module.running_mean.normal_(-0.3, 0.3)  # type: ignore[union-attr]
            module.running_var.uniform_(0.2, 1.0)  # type: ignore[union-attr]
    return model


def quantized(model: nn.Module, x: Tensor, **changes: object) -> Case:
    recipe = PAPER.replace(calibration=64, holdout=16, sensitivity_batches=2).replace(**changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(model, x, recipe)
        return Case(prepared, run(prepared, recipe))


@pytest.fixture(scope="session")
def residual() -> Case:
    """Mixed precision on a SEW-ResNet."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return quantized(sew(), torch.randn(64, 3, 16, 16), beta_grid=(0.0, 0.8), percentile_grid=(97.0,))


@pytest.fixture(scope="session")
def twice() -> Case:
    """Uniform 4 bits on `Twice`."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return quantized(Twice(), 3 * torch.randn(64, 2, 6), allocation="uniform", coupling="independent")


@pytest.fixture(scope="session")
def summed() -> Case:
    """Uniform 4 bits on `Summed`."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return quantized(Summed(), 4 * torch.randn(64, 6), allocation="uniform")


@pytest.fixture(scope="session")
def still() -> Case:
    """Uniform 4 bits on `Still`."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return quantized(Still(), 6 * torch.randn(64, 6), allocation="uniform")


@pytest.fixture(scope="session")
def merged() -> Case:
    """Uniform 2 bits on `Merged`, eight samples at a time."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        x = 3 * torch.randn(64, 6)
        return quantized(Merged(), x, allocation="uniform", membrane=2, micro_batch=8)


@pytest.fixture(scope="session")
def pixelwise() -> Case:
    """Uniform 2 bits on `Pixelwise`."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return quantized(Pixelwise(), 3 * torch.randn(64, 3, 8, 6), allocation="uniform", membrane=2)


@pytest.fixture
def fading() -> tuple[nn.Module, Tensor, Recipe]:
    """A model whose second neuron goes silent under coupling "reuse"."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        recipe = PAPER.replace(calibration=64, holdout=16, allocation="uniform", coupling="reuse")
        return Fading(), torch.randn(64, 3), recipe

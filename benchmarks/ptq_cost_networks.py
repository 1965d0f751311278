"""Networks and samples that the cost of quantization is measured on: T = 4 and 25, 32 and 224 pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from runtime_parts.networks import tuned
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.data.cifar import normalize
from ptq4snn.data.event_sample import nmnist_sample
from ptq4snn.data.sample import default_sample
from ptq4snn.models.neuron import LIF
from ptq4snn.models.zoo import MODELS, load_default

__all__ = ["NETWORKS", "Network"]

RATE = 0.15  # that networks with random weights fire at
STEPS, HEIGHT, WIDTH = 25, 64, 216


class TwoConvolutions(nn.Module):
    """A small network for event cameras of a large field: [B, 25, 2, 64, 216] to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(2, 16, 5, padding=2, bias=False), nn.Conv2d(16, 32, 3, padding=1, bias=False)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(32)])
        self.neurons = nn.ModuleList([LIF(), LIF()])
        self.pool = nn.AvgPool2d(4)
        self.classifier = nn.Linear(32 * (HEIGHT // 16) * (WIDTH // 16), 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)  # [T, B, ...]
        for convolution, norm, neuron in zip(self.convolutions, self.norms, self.neurons, strict=True):
            spikes = neuron(norm(convolution(x.flatten(0, 1))).unflatten(0, x.shape[:2]))
            x = self.pool(spikes.flatten(0, 1)).unflatten(0, x.shape[:2])
        out: Tensor = self.classifier(x.flatten(2)).mean(0)
        return out


@dataclass(frozen=True)
class Network:
    """`make` gives the model and that many samples."""

    make: Callable[[int], tuple[nn.Module, Tensor]]
    samples: int
    about: str


def default(count: int) -> tuple[nn.Module, Tensor]:
    return load_default(), normalize(default_sample()[0])[:count]


def slow(count: int) -> tuple[nn.Module, Tensor]:
    return MODELS["vgg4-16-nmnist-slow"].load(), nmnist_sample()[0][:count]


def wide_field(count: int) -> tuple[nn.Module, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(count, STEPS, 2, HEIGHT, WIDTH, generator=g) < 0.06).float()
    return tuned(TwoConvolutions(), RATE, x=x[:2]), x


def photographs(count: int, size: int = 224) -> Tensor:
    """Smooth images of 256 grey levels, normalised [count, 3, size, size]."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, size // 8, size // 8, generator=g)
    x = F.interpolate(x, size=(size, size), mode="bilinear")
    return ((x * 255).round() / 255 - 0.5) / 0.25


def published(name: str, count: int) -> tuple[nn.Module, Tensor]:
    x = photographs(count)
    return tuned(MODELS[name].make(), RATE, x=x[:2]), x


NETWORKS = {
    "default": Network(default, 256, "trained, T = 4, 32 x 32"),
    "vgg4-16-nmnist-slow": Network(slow, 128, "trained, T = 25, 32 x 32"),
    "two convolutions": Network(wide_field, 48, "random weights, T = 25, 64 x 216"),
    "sew-resnet18-imagenet": Network(
        lambda n: published("sew-resnet18-imagenet", n), 64, "random weights, T = 4, 224 x 224"
    ),
    "sdt-8-384-imagenet": Network(
        lambda n: published("sdt-8-384-imagenet", n), 48, "random weights, T = 4, 224 x 224"
    ),
}

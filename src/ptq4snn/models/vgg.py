"""Spiking VGG with BatchNorm, with SpikingJelly's parameter names.

    features      groups of (conv3x3 -> bn -> sn), each closed by a 2x2 max-pool of the spikes
    linear head   mean over positions -> linear
    stock head    average pool to 7x7 -> linear -> sn -> dropout -> linear -> sn -> dropout -> linear
    logits        averaged over time

The modules of a stage are numbered in one row as there: features.0 conv, .1 bn, .2 sn, .3 conv, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step

__all__ = ["VGG16", "SpikingVGG"]

Neuron = Callable[[], nn.Module]
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
STOCK_POOL = 7


class Row(nn.Sequential):
    """Modules in a row; the neurons among them see whole sequences, all others single steps."""

    def __init__(self, modules: Sequence[nn.Module], neurons: Sequence[int]) -> None:
        super().__init__(*modules)
        self.neurons = frozenset(neurons)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:  # [T, B, ...]
        for i, module in enumerate(self):
            if i >= start:
                x = module(x) if i in self.neurons else per_step(module, x)
        return x


def feature_row(widths: Sequence[Sequence[int]], in_channels: int, neuron: Neuron) -> Row:
    modules: list[nn.Module] = []
    neurons = []
    channels = in_channels
    for group in widths:
        for width in group:
            modules += [nn.Conv2d(channels, width, 3, 1, 1), nn.BatchNorm2d(width), neuron()]
            neurons.append(len(modules) - 1)
            channels = width
        modules.append(nn.MaxPool2d(2))
    return Row(modules, neurons)


def stock_row(channels: int, hidden: int, num_classes: int, neuron: Neuron, dropout: float) -> Row:
    first, second = nn.Linear(channels * STOCK_POOL**2, hidden), nn.Linear(hidden, hidden)
    last = nn.Linear(hidden, num_classes)
    return Row(
        [first, neuron(), nn.Dropout(dropout), second, neuron(), nn.Dropout(dropout), last], neurons=(1, 4)
    )


class SpikingVGG(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[T, B, C, H, W]` is a sequence, with `dvs`
    `x[B, T, C, H, W]`.

    `widths` lists the channels of the convolutions of every group; H and W are halved by each group.
    The published models are VGG16 with the linear head (CIFAR) and the stock head with 4096 hidden neurons.
    """

    def __init__(
        self,
        widths: Sequence[Sequence[int]] = VGG16,
        num_classes: int = 10,
        in_channels: int = 3,
        T: int = 4,
        head: str = "linear",
        hidden: int = 4096,
        dropout: float = 0.5,
        neuron: Neuron = LIF,
        dvs: bool = False,
    ) -> None:
        super().__init__()
        if head not in ("linear", "stock"):
            raise ValueError(f"head must be linear or stock, got {head!r}")
        if not widths or not all(widths):
            raise ValueError("widths must list at least one convolution in every group")
        self.T, self.dvs = T, dvs
        self.features = feature_row(widths, in_channels, neuron)
        channels = widths[-1][-1]
        if head == "linear":
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.classifier = Row([nn.Linear(channels, num_classes)], neurons=())
        else:
            self.avgpool = nn.AdaptiveAvgPool2d(STOCK_POOL)
            self.classifier = stock_row(channels, hidden, num_classes, neuron, dropout)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:  # the first convolution of a still image is the same at every step
            y = self.features[1](self.features[0](x)).unsqueeze(0)
            y = self.features(y.expand(self.T, *y.shape[1:]), start=2)
        else:
            y = self.features(x.transpose(0, 1) if self.dvs else x)
        y = per_step(self.avgpool, y).flatten(2)  # [T, B, C * positions]
        logits: Tensor = self.classifier(y).mean(0)
        return logits

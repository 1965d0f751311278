"""ResNet20 of CIFAR-10 converted to integrate-and-fire neurons, in the manner of SpikingJelly's ann2snn.

Batch normalisation goes into the convolutions. Every ReLU becomes an IF neuron with soft reset whose
threshold is the 99.9th percentile of what the ReLU gave on training images:

    relu_l(x)  ->  theta_l S_l,     H = V + x,   S = H >= theta_l,   V = H - theta_l S

ann2snn writes this with scalers of 1 / theta_l in front of and theta_l behind a neuron of threshold 1; here
they stand in the weights, W_l theta_(l-1) / theta_l. A shortcut is a convolution
of one pixel whose weights are theta_in / theta_out (the network's own subsampling and padding with channels
of zeros, where it narrows the image). The image is shown for T steps, the scores are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.models.neuron import IF

__all__ = ["MEAN", "STD", "converted"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # that the checkpoint was trained with
PERCENTILE = 0.999
WIDTHS = (16, 32, 64)
BLOCKS = 3  # a stage


class Spiking(nn.Module):
    """Images [B, 3, 32, 32] to scores [B, 10]."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.conv = nn.Conv2d(3, WIDTHS[0], 3, padding=1)
        self.neuron = IF(v_threshold=1.0, v_reset=None)
        widths = [WIDTHS[0], *(w for w in WIDTHS for _ in range(BLOCKS))]
        self.blocks = nn.ModuleList([Block(a, b) for a, b in pairwise(widths)])
        self.linear = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        current: Tensor = self.conv(x)
        s = self.neuron(current.unsqueeze(0).repeat(self.steps, 1, 1, 1, 1))
        for block in self.blocks:
            s = block(s)
        scores: Tensor = self.linear(s.mean((3, 4)))  # [T, B, 10]
        return scores.mean(0)


class Block(nn.Module):
    """Two convolutions and a shortcut, on spikes [T, B, C, H, W]."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        stride = b // a
        self.conv1 = nn.Conv2d(a, b, 3, stride, 1)
        self.neuron1 = IF(v_threshold=1.0, v_reset=None)
        self.conv2 = nn.Conv2d(b, b, 3, 1, 1)
        self.shortcut = nn.Conv2d(a, b, 1, stride, bias=False)
        self.neuron2 = IF(v_threshold=1.0, v_reset=None)

    def forward(self, s: Tensor) -> Tensor:
        steps = len(s)
        s = s.flatten(0, 1)
        inner = self.neuron1(self.conv1(s).unflatten(0, (steps, -1)))
        current = self.conv2(inner.flatten(0, 1)) + self.shortcut(s)
        out: Tensor = self.neuron2(current.unflatten(0, (steps, -1)))
        return out


def converted(checkpoint: Path, images: Tensor, steps: int) -> Spiking:
    """The spiking network of a ResNet20's state_dict; thresholds are set by `images`."""
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    weights = {name.removeprefix("module."): w for name, w in weights.items()}
    net = Spiking(steps)
    with torch.no_grad():
        _convert(net, weights, images)
    return net.eval().requires_grad_(False)


def _convert(net: Spiking, weights: dict[str, Tensor], x: Tensor) -> None:
    """Layer by layer, while the images go through the ReLU network; x is its activation."""
    x = F.relu(_folded(net.conv, weights, "conv1", "bn1")(x))
    before = _percentile(x)
    _scale(net.conv, 1 / before)
    for block, name in zip(net.blocks, _names(), strict=True):
        assert isinstance(block, Block)
        y = F.relu(_folded(block.conv1, weights, f"{name}.conv1", f"{name}.bn1")(x))
        middle = _percentile(y)
        _scale(block.conv1, before / middle, 1 / middle)
        nn.init.zeros_(block.shortcut.weight)
        a, b = block.shortcut.in_channels, block.shortcut.out_channels
        first = (b - a) // 2  # channels of zeros on both sides
        block.shortcut.weight[first : first + a, :, 0, 0] = torch.eye(a)
        x = F.relu(_folded(block.conv2, weights, f"{name}.conv2", f"{name}.bn2")(y) + block.shortcut(x))
        after = _percentile(x)
        _scale(block.conv2, middle / after, 1 / after)
        _scale(block.shortcut, before / after)
        before = after
    net.linear.weight.copy_(weights["linear.weight"] * before)
    net.linear.bias.copy_(weights["linear.bias"])


def _names() -> Iterator[str]:
    yield from (f"layer{i + 1}.{j}" for i in range(len(WIDTHS)) for j in range(BLOCKS))


def _folded(conv: nn.Conv2d, weights: dict[str, Tensor], name: str, norm: str) -> nn.Conv2d:
    """The convolution with its normalisation's scale and offset in it."""
    scale = weights[f"{norm}.weight"] / (weights[f"{norm}.running_var"] + 1e-5).sqrt()
    conv.weight.copy_(weights[f"{name}.weight"] * scale.view(-1, 1, 1, 1))
    assert conv.bias is not None
    conv.bias.copy_(weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)
    return conv


def _scale(conv: Any, by: float, bias: float | None = None) -> None:
    conv.weight.mul_(by)
    if conv.bias is not None:
        conv.bias.mul_(by if bias is None else bias)


def _percentile(x: Tensor) -> float:
    flat = x.flatten()
    return float(flat.kthvalue(round(PERCENTILE * len(flat))).values)

"""SEW-ResNet: spike-element-wise residual network, with SpikingJelly's parameter names (Fang et al., 2021).

    basic block   out = sn2(bn2(conv3x3(sn1(bn1(conv3x3 x)))))
    bottleneck    out = sn3(bn3(conv1x1(sn2(bn2(conv3x3(sn1(bn1(conv1x1 x))))))))
    identity      x  or  sn(bn(conv1x1 x))
    join          ADD out + identity    AND out * identity    IAND identity * (1 - out)
    head          fc(mean over positions), averaged over time

Stems: "cifar" is conv3x3 -> bn -> sn at full resolution, "imagenet" conv7x7 (stride 2) -> bn -> sn -> pool.
SpikingJelly's bottleneck has IAND the other way round, out * (1 - identity): `swapped_iand` does the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor, nn

from ptq4snn.models.neuron import IF, LIF
from ptq4snn.models.patches import per_step

__all__ = ["BasicBlock", "Bottleneck", "SEWResNet", "from_official", "sew_resnet"]

Neuron = Callable[[], nn.Module]
Value = TypeVar("Value")
CONNECTIONS = ("ADD", "AND", "IAND")
DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


def conv3x3(cin: int, cout: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, 3, stride, 1, bias=False)


def conv1x1(cin: int, cout: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, 1, stride, bias=False)


def join(connect: str, out: Tensor, identity: Tensor) -> Tensor:
    """ADD, AND or IAND of two spike tensors of one shape."""
    if connect == "ADD":
        return out + identity
    if connect == "AND":
        return out * identity
    return identity * (1 - out)


class Block(nn.Module):
    """Two branches of spikes [T, B, cout, H, W] and how they are joined."""

    def __init__(self, connect: str) -> None:
        super().__init__()
        self.connect = connect
        self.downsample: nn.Sequential | None = None

    def add_shortcut(self, cin: int, cout: int, stride: int, neuron: Neuron) -> None:
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(conv1x1(cin, cout, stride), nn.BatchNorm2d(cout))
            self.downsample_sn = neuron()

    def identity(self, x: Tensor) -> Tensor:
        if self.downsample is None:
            return x
        spikes: Tensor = self.downsample_sn(per_step(self.downsample, x))
        return spikes


class BasicBlock(Block):
    expansion = 1

    def __init__(
        self, cin: int, cout: int, stride: int, connect: str, neuron: Neuron, swapped_iand: bool = False
    ) -> None:
        super().__init__(connect)
        self.conv1, self.bn1, self.sn1 = conv3x3(cin, cout, stride), nn.BatchNorm2d(cout), neuron()
        self.conv2, self.bn2, self.sn2 = conv3x3(cout, cout), nn.BatchNorm2d(cout), neuron()
        self.add_shortcut(cin, cout, stride, neuron)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, cin, H, W]
        out: Tensor = self.sn1(per_step(self.bn1, per_step(self.conv1, x)))
        out = self.sn2(per_step(self.bn2, per_step(self.conv2, out)))
        return join(self.connect, out, self.identity(x))


class Bottleneck(Block):
    """`width` channels inside, 4 * width outside; the 3x3 convolution has the stride."""

    expansion = 4

    def __init__(
        self, cin: int, width: int, stride: int, connect: str, neuron: Neuron, swapped_iand: bool = False
    ) -> None:
        super().__init__(connect)
        cout = width * self.expansion
        self.swapped = swapped_iand and connect == "IAND"
        self.conv1, self.bn1, self.sn1 = conv1x1(cin, width), nn.BatchNorm2d(width), neuron()
        self.conv2, self.bn2, self.sn2 = conv3x3(width, width, stride), nn.BatchNorm2d(width), neuron()
        self.conv3, self.bn3, self.sn3 = conv1x1(width, cout), nn.BatchNorm2d(cout), neuron()
        self.add_shortcut(cin, cout, stride, neuron)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, cin, H, W]
        out: Tensor = self.sn1(per_step(self.bn1, per_step(self.conv1, x)))
        out = self.sn2(per_step(self.bn2, per_step(self.conv2, out)))
        out = self.sn3(per_step(self.bn3, per_step(self.conv3, out)))
        identity = self.identity(x)
        return join(self.connect, identity, out) if self.swapped else join(self.connect, out, identity)


class SEWResNet(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[T, B, C, H, W]` is a sequence.

    `stem` is the number of its channels, `widths` those of the stages (inside, for bottlenecks).
    """

    def __init__(
        self,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (2, 2, 2, 2),
        strides: Sequence[int] = (1, 2, 2, 2),
        stem: int | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        T: int = 4,
        connect: str = "ADD",
        neuron: Neuron = LIF,
        block: type[BasicBlock] | type[Bottleneck] = BasicBlock,
        stem_kind: str = "cifar",
        swapped_iand: bool = False,
    ) -> None:
        super().__init__()
        if connect not in CONNECTIONS:
            raise ValueError(f"connect must be ADD, AND or IAND, got {connect!r}")
        if stem_kind not in ("cifar", "imagenet"):
            raise ValueError(f"stem_kind must be cifar or imagenet, got {stem_kind!r}")
        self.T = T
        channels = stem or widths[0]
        large = stem_kind == "imagenet"
        self.conv1 = (
            nn.Conv2d(in_channels, channels, 7, 2, 3, bias=False) if large else conv3x3(in_channels, channels)
        )
        self.bn1, self.sn1 = nn.BatchNorm2d(channels), neuron()
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large else None
        self.stages = len(widths)
        for i, (width, depth, stride) in enumerate(zip(widths, blocks, strides, strict=True)):
            layer = []
            for j in range(depth):
                step = stride if j == 0 else 1
                layer.append(block(channels, width, step, connect, neuron, swapped_iand))
                channels = width * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*layer))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:  # the stem of a still image is the same at every step
            y = self.bn1(self.conv1(x)).unsqueeze(0)
            y = y.expand(self.T, *y.shape[1:])
        else:
            y = per_step(self.bn1, per_step(self.conv1, x))
        y = self.sn1(y)
        if self.maxpool is not None:
            y = per_step(self.maxpool, y)
        for i in range(self.stages):
            y = self.get_submodule(f"layer{i + 1}")(y)
        y = per_step(self.avgpool, y).flatten(2)  # [T, B, C]
        logits: Tensor = self.fc(y).mean(0)
        return logits


def sew_resnet(
    depth: int = 18,
    num_classes: int = 1000,
    T: int = 4,
    connect: str = "ADD",
    neuron: Neuron = IF,
    stem_kind: str = "imagenet",
    width: int = 64,
    in_channels: int = 3,
    swapped_iand: bool = False,
) -> SEWResNet:
    """SEW-ResNet of 18, 34 or 50 layers; the defaults are the published ImageNet models."""
    if depth not in DEPTHS:
        raise ValueError(f"depth must be one of {', '.join(map(str, DEPTHS))}, got {depth}")
    return SEWResNet(
        widths=(width, 2 * width, 4 * width, 8 * width),
        blocks=DEPTHS[depth],
        num_classes=num_classes,
        in_channels=in_channels,
        T=T,
        connect=connect,
        neuron=neuron,
        block=Bottleneck if depth == 50 else BasicBlock,
        stem_kind=stem_kind,
        swapped_iand=swapped_iand,
    )


OFFICIAL = (
    (re.compile(r"\.conv(\d)\.module\.0(?=\.|$)"), r".conv\1"),
    (re.compile(r"\.conv(\d)\.module\.1(?=\.|$)"), r".bn\1"),
    (re.compile(r"\.downsample\.1$"), r".downsample_sn"),
    (re.compile(r"\.downsample\.0\.module\.([01])(?=\.|$)"), r".downsample.\1"),
)


def official_name(name: str) -> str:
    """Our name of a parameter or module of the official repository; our parameters keep their names."""
    for pattern, ours in OFFICIAL:
        found = pattern.sub(ours, name)
        if found != name:
            return found
    return name


def from_official(state: Mapping[str, Value]) -> dict[str, Value]:
    """A state_dict of the official repository (or of SpikingJelly) under the names used here."""
    return {official_name(name): value for name, value in state.items()}

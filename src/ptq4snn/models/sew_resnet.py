"""SEW-ResNet: spike-element-wise residual network, with SpikingJelly's parameter names.

block:  out = sn2(bn2(conv2(sn1(bn1(conv1 x)))))        identity = x  or  sn(bn(conv1x1 x))
        ADD out + identity    AND out * identity    IAND identity * (1 - out)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ptq4snn.models.neuron import LIF

__all__ = ["BasicBlock", "SEWResNet"]

Neuron = Callable[[], nn.Module]


def per_step(module: nn.Module, x: Tensor) -> Tensor:
    """Apply a stateless module to x[T, B, ...] with time folded into the batch."""
    y: Tensor = module(x.flatten(0, 1))
    return y.view(x.shape[0], x.shape[1], *y.shape[1:])


def conv3x3(cin: int, cout: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, connect: str, neuron: Neuron) -> None:
        super().__init__()
        self.connect = connect
        self.conv1, self.bn1, self.sn1 = conv3x3(cin, cout, stride), nn.BatchNorm2d(cout), neuron()
        self.conv2, self.bn2, self.sn2 = conv3x3(cout, cout), nn.BatchNorm2d(cout), neuron()
        self.downsample: nn.Sequential | None = None
        if stride != 1 or cin != cout:
            shortcut = nn.Conv2d(cin, cout, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(cout))
            self.downsample_sn = neuron()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, cin, H, W]
        out: Tensor = self.sn1(per_step(self.bn1, per_step(self.conv1, x)))
        out = self.sn2(per_step(self.bn2, per_step(self.conv2, out)))
        identity: Tensor = x
        if self.downsample is not None:
            identity = self.downsample_sn(per_step(self.downsample, x))
        if self.connect == "ADD":
            return out + identity
        if self.connect == "AND":
            return out * identity
        return identity * (1 - out)


class SEWResNet(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[T, B, C, H, W]` is a sequence."""

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
    ) -> None:
        super().__init__()
        if connect not in ("ADD", "AND", "IAND"):
            raise ValueError(f"connect must be ADD, AND or IAND, got {connect!r}")
        self.T = T
        channels = stem or widths[0]
        self.conv1, self.bn1 = conv3x3(in_channels, channels), nn.BatchNorm2d(channels)
        self.sn1 = neuron()
        self.stages = len(widths)
        for i, (width, depth, stride) in enumerate(zip(widths, blocks, strides, strict=True)):
            layer = []
            for j in range(depth):
                layer.append(BasicBlock(channels, width, stride if j == 0 else 1, connect, neuron))
                channels = width
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
        for i in range(self.stages):
            y = self.get_submodule(f"layer{i + 1}")(y)
        y = per_step(self.avgpool, y).flatten(2)  # [T, B, C]
        logits: Tensor = self.fc(y).mean(0)
        return logits

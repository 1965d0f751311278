"""Semantic segmentation with Meta-SpikeFormer: feature pyramid and head, with their authors' parameter names.

backbone       streams x_0..x_3 at H/2, H/4, H/8, H/16, averaged over time: from here on there is one step
lateral        l_i = conv1x1(lif x_i);     l_(i-1) += nearest upsampling of l_i
pyramid        p_i = conv3x3(lif l_i)
scale head i   max(1, i) times  bn(conv3x3(lif p)), each followed by bilinear upsampling x2 (not for i = 0)
output         conv1x1(lif(sum of the scale heads, at H/2)) = logits [B, classes, H/2, W/2]
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.models.meta_spikeformer import Backbone
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step

__all__ = ["FPNHead", "FPNNeck", "SpikeFPN"]

FIRING_STD = 4.0  # currents of 2, the threshold of a single step, when a quarter of the inputs spike


class ConvNorm(nn.Module):
    """Convolution [-> BatchNorm] of B maps."""

    def __init__(self, cin: int, cout: int, kernel: int, norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, padding=kernel // 2, bias=not norm)
        self.bn = nn.BatchNorm2d(cout) if norm else nn.Identity()
        if not norm:  # no norm will lift the currents of sparse spikes to the threshold: start them there
            nn.init.normal_(self.conv.weight, std=FIRING_STD / (cin * kernel * kernel) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv(x))
        return y


class SpikingConv(nn.Sequential):
    """lif -> convolution [-> BatchNorm] [-> bilinear x2] of x [T, B, C, H, W]."""

    def __init__(self, cin: int, cout: int, kernel: int, norm: bool = False, upsample: bool = False) -> None:
        super().__init__(LIF(), nn.Sequential(ConvNorm(cin, cout, kernel, norm)))
        self.upsample = upsample

    def forward(self, x: Tensor) -> Tensor:
        y = per_step(self[1], self[0](x))
        return resize(y, (2 * y.shape[-2], 2 * y.shape[-1])) if self.upsample else y


def resize(x: Tensor, size: Sequence[int], mode: str = "bilinear") -> Tensor:
    """x [T, B, C, H, W] at another size, without aligned corners."""
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    align = None if mode == "nearest" else False
    y = F.interpolate(x.flatten(0, 1), size=tuple(size), mode=mode, align_corners=align)
    return y.view(*x.shape[:3], *y.shape[-2:])


class FPNNeck(nn.Module):
    def __init__(self, in_channels: Sequence[int], channels: int) -> None:
        super().__init__()
        self.lateral_convs = nn.ModuleList(SpikingConv(c, channels, 1) for c in in_channels)
        self.fpn_convs = nn.ModuleList(SpikingConv(channels, channels, 3) for _ in in_channels)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        laterals = [conv(x) for conv, x in zip(self.lateral_convs, features, strict=True)]
        for i in range(len(laterals) - 1, 0, -1):
            up = resize(laterals[i], laterals[i - 1].shape[-2:], "nearest")
            laterals[i - 1] = laterals[i - 1] + up
        return [conv(x) for conv, x in zip(self.fpn_convs, laterals, strict=True)]


class FPNHead(nn.Module):
    def __init__(self, channels: int, num_classes: int, levels: int = 4) -> None:
        super().__init__()
        self.scale_heads = nn.ModuleList(
            nn.Sequential(
                *(SpikingConv(channels, channels, 3, True, level > 0) for _ in range(max(1, level)))
            )
            for level in range(levels)
        )
        self.decode_lif = LIF()
        self.conv_seg = nn.Conv2d(channels, num_classes, 1)

    def forward(self, pyramid: list[Tensor]) -> Tensor:
        total: Tensor = self.scale_heads[0](pyramid[0])
        for head, x in zip(self.scale_heads[1:], pyramid[1:], strict=True):
            total = total + resize(head(x), total.shape[-2:])
        return per_step(self.conv_seg, self.decode_lif(total))


class SpikeFPN(nn.Module):
    """`x[B, 3, H, W]` to logits [B, classes, H/2, W/2].

    Published are widths (64, 128, 256, 360) with 128 channels ("15M") and (128, 256, 512, 640) with 256
    ("55M"), both with 150 outputs whatever the data set. Heights and widths that are multiples of 16 need no
    resize but doublings; others run in float only.
    """

    def __init__(
        self,
        widths: Sequence[int] = (64, 128, 256, 360),
        channels: int = 128,
        depths: Sequence[int] = (6, 2),
        heads: int = 8,
        num_classes: int = 150,
        in_channels: int = 3,
        T: int = 4,
        mlp_ratio: int = 4,
    ) -> None:
        super().__init__()
        self.backbone = Backbone(widths, depths, heads, mlp_ratio, in_channels, T)
        self.neck = FPNNeck((widths[0] // 2, widths[0], widths[1], widths[3]), channels)
        self.decode_head = FPNHead(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        features = [f.mean(0, keepdim=True) for f in self.backbone.features(x)]
        logits: Tensor = self.decode_head(self.neck(features))  # [1, B, classes, H/2, W/2]
        return logits[0]

"""Meta-SpikeFormer (Spike-Driven Transformer V2), with its authors' parameter names (Yao et al., ICLR 2024).

    downsampling   stream = bn(conv(lif stream))        the first, 7x7, reads the image and has no lif
    conv block     stream += bn(pw(dw7x7(lif(bn(pw(lif stream))))))
                   stream += bn(conv3x3(lif(bn(conv3x3(lif stream)))))
    attention      s = lif(stream);  q, k, v = lif(bn(RepConv s));  y = lif(q (k^T v) / 8)
                   stream += bn(RepConv y)
    mlp            stream += bn(conv1x1(lif(bn(conv1x1(lif stream)))))
    RepConv        bn(conv1x1(dw3x3(pad(bn(conv1x1 x))))), padded with what the norm makes of 0
    head           linear(lif(mean over positions)), averaged over time; with kd the mean of two of them

Stages and widths, of an image H x W (with the published strides of 2):

    downsample1_1, ConvBlock1_1                 widths[0] / 2     H/2
    downsample1_2, ConvBlock1_2                 widths[0]         H/4
    downsample2, ConvBlock2_1, ConvBlock2_2     widths[1]         H/8
    downsample3, block3                         widths[2]         H/16
    downsample4, block4                         widths[3]         H/16
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step

__all__ = ["BNAndPad", "Backbone", "MetaSpikeFormer", "RepConv"]

ATTENTION_THRESHOLD = 0.5
ATTENTION_SCALE = 0.125  # whatever the width of a head


class BNAndPad(nn.Module):
    """BatchNorm, then a border of what it makes of zeros: the norm of a zero-padded x [B, C, H, W]."""

    def __init__(self, channels: int, pad_pixels: int = 1) -> None:
        super().__init__()
        self.pad_pixels = pad_pixels
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(x)
        if not self.pad_pixels:
            return y
        bn, p = self.bn, self.pad_pixels
        assert bn.running_mean is not None and bn.running_var is not None
        # statistics are those of x itself, so that padding does not change them in training
        at_zero = bn.bias - bn.running_mean * bn.weight / (bn.running_var + bn.eps).sqrt()
        inside = F.pad(x.new_ones(1, 1, *x.shape[2:]), [p] * 4)
        return F.pad(y, [p] * 4) + (1 - inside) * at_zero.view(1, -1, 1, 1)


class RepConv(nn.Module):
    """A 3x3 convolution in three parts, for training: pointwise, depthwise, pointwise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 1, bias=False),
            BNAndPad(width),
            nn.Sequential(
                nn.Conv2d(width, width, 3, groups=width, bias=False),
                nn.Conv2d(width, width, 1, bias=False),
                nn.BatchNorm2d(width),
            ),
        )

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W]
        y: Tensor = self.body(x)
        return y


class DownSampling(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int, first: bool = False) -> None:
        super().__init__()
        self.encode_conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2)
        self.encode_bn = nn.BatchNorm2d(cout)
        self.encode_lif = None if first else LIF()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        if self.encode_lif is not None:
            x = self.encode_lif(x)
        return per_step(self.encode_bn, per_step(self.encode_conv, x))


class SepConv(nn.Module):
    """lif -> pointwise -> bn -> lif -> depthwise 7x7 -> pointwise -> bn."""

    def __init__(self, width: int, ratio: int = 2) -> None:
        super().__init__()
        hidden = width * ratio
        self.lif1, self.lif2 = LIF(), LIF()
        self.pwconv1 = nn.Conv2d(width, hidden, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 7, padding=3, groups=hidden, bias=False)
        self.pwconv2 = nn.Conv2d(hidden, width, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        x = self.lif2(per_step(self.bn1, per_step(self.pwconv1, self.lif1(x))))
        x = per_step(self.pwconv2, per_step(self.dwconv, x))
        return per_step(self.bn2, x)


class ConvBlock(nn.Module):
    def __init__(self, width: int, mlp_ratio: int = 4) -> None:
        super().__init__()
        hidden = width * mlp_ratio
        self.Conv = SepConv(width)
        self.lif1, self.lif2 = LIF(), LIF()
        self.conv1, self.bn1 = nn.Conv2d(width, hidden, 3, padding=1, bias=False), nn.BatchNorm2d(hidden)
        self.conv2, self.bn2 = nn.Conv2d(hidden, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        x = self.Conv(x) + x
        y = self.lif2(per_step(self.bn1, per_step(self.conv1, self.lif1(x))))
        return x + per_step(self.bn2, per_step(self.conv2, y))


class Attention(nn.Module):
    """Self-attention of spikes, linear in the number of tokens: q (k^T v)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.head_lif = LIF()
        for name in ("q", "k", "v", "proj"):
            self.add_module(f"{name}_conv", nn.Sequential(RepConv(width), nn.BatchNorm2d(width)))
        for name in "qkv":
            self.add_module(f"{name}_lif", LIF())
            # a product of three sparse spikes is silent: start them firing half of the time
            nn.init.constant_(self.get_parameter(f"{name}_conv.1.bias"), 1.0)
        self.attn_lif = LIF(v_threshold=ATTENTION_THRESHOLD)

    def by_head(self, x: Tensor, name: str) -> Tensor:
        """Spikes of q, k or v as [T, B, heads, tokens, C / heads]."""
        y: Tensor = self.get_submodule(f"{name}_lif")(per_step(self.get_submodule(f"{name}_conv"), x))
        y = y.flatten(3).transpose(-1, -2)
        return y.reshape(*y.shape[:3], self.heads, -1).permute(0, 1, 3, 2, 4).contiguous()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        s = self.head_lif(x)
        q, k, v = (self.by_head(s, name) for name in "qkv")
        y = (q @ (k.transpose(-2, -1) @ v)) * ATTENTION_SCALE
        y = self.attn_lif(y.transpose(3, 4).reshape(*x.shape[:3], -1))  # [T, B, C, tokens]
        return per_step(self.get_submodule("proj_conv"), y.reshape(x.shape))


class MLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1_conv, self.fc1_bn, self.fc1_lif = nn.Conv1d(width, hidden, 1), nn.BatchNorm1d(hidden), LIF()
        self.fc2_conv, self.fc2_bn, self.fc2_lif = nn.Conv1d(hidden, width, 1), nn.BatchNorm1d(width), LIF()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        y = per_step(self.fc1_bn, per_step(self.fc1_conv, self.fc1_lif(x.flatten(3))))
        y = per_step(self.fc2_bn, per_step(self.fc2_conv, self.fc2_lif(y)))
        return y.reshape(x.shape)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.attn = Attention(width, heads)
        self.mlp = MLP(width, width * mlp_ratio)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        x = x + self.attn(x)
        y: Tensor = x + self.mlp(x)
        return y


class Backbone(nn.Module):
    """The four stages; `features` are what a segmentation neck reads. Any H and W will do, best of 16."""

    def __init__(
        self,
        widths: Sequence[int] = (128, 256, 512, 640),
        depths: Sequence[int] = (6, 2),
        heads: int = 8,
        mlp_ratio: int = 4,
        in_channels: int = 3,
        T: int = 4,
        strides: Sequence[int] = (2, 2, 2, 2),
    ) -> None:
        super().__init__()
        if len(widths) != 4 or len(depths) != 2 or len(strides) != 4:
            raise ValueError(
                f"expected four widths, two depths and four strides, got {list(widths)}, {list(depths)} "
                f"and {list(strides)}"
            )
        if widths[0] % 2:
            raise ValueError(f"the first width must be even, got {widths[0]}")
        self.T = T
        a, b, c, d = widths
        self.downsample1_1 = DownSampling(in_channels, a // 2, 7, strides[0], first=True)
        self.ConvBlock1_1 = nn.ModuleList([ConvBlock(a // 2, mlp_ratio)])
        self.downsample1_2 = DownSampling(a // 2, a, 3, strides[1])
        self.ConvBlock1_2 = nn.ModuleList([ConvBlock(a, mlp_ratio)])
        self.downsample2 = DownSampling(a, b, 3, strides[2])
        self.ConvBlock2_1 = nn.ModuleList([ConvBlock(b, mlp_ratio)])
        self.ConvBlock2_2 = nn.ModuleList([ConvBlock(b, mlp_ratio)])
        self.downsample3 = DownSampling(b, c, 3, strides[3])
        self.block3 = nn.ModuleList(Block(c, heads, mlp_ratio) for _ in range(depths[0]))
        self.downsample4 = DownSampling(c, d, 3, 1)
        self.block4 = nn.ModuleList(Block(d, heads, mlp_ratio) for _ in range(depths[1]))
        self.lif = LIF()  # in front of the classifier; of no use in segmentation

    def features(self, x: Tensor) -> list[Tensor]:
        """Streams [T, B, C, h, w] at H/2, H/4, H/8, H/16 of images [B, C, H, W] or frames [B, T, C, H, W]."""
        x = x.unsqueeze(0).repeat(self.T, 1, 1, 1, 1) if x.dim() == 4 else x.transpose(0, 1).contiguous()
        stages = (
            (self.downsample1_1, *self.ConvBlock1_1),
            (self.downsample1_2, *self.ConvBlock1_2),
            (self.downsample2, *self.ConvBlock2_1, *self.ConvBlock2_2),
            (self.downsample3, *self.block3, self.downsample4, *self.block4),
        )
        out = []
        for stage in stages:
            for module in stage:
                x = module(x)
            out.append(x)
        return out


class MetaSpikeFormer(Backbone):
    """The classifier. Published are widths (96, 192, 384, 480) and (128, 256, 512, 640), the latter also with
    `kd`: a second head, trained by distillation; the output is the average of both."""

    def __init__(
        self,
        widths: Sequence[int] = (128, 256, 512, 640),
        depths: Sequence[int] = (6, 2),
        heads: int = 8,
        num_classes: int = 1000,
        in_channels: int = 3,
        T: int = 4,
        mlp_ratio: int = 4,
        kd: bool = False,
        strides: Sequence[int] = (2, 2, 2, 2),
    ) -> None:
        super().__init__(widths, depths, heads, mlp_ratio, in_channels, T, strides)
        self.head = nn.Linear(widths[-1], num_classes)
        self.head_kd = nn.Linear(widths[-1], num_classes) if kd else None

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W]
        s = self.lif(self.features(x)[-1].flatten(3).mean(3))
        logits: Tensor = self.head(s)  # [T, B, classes]
        if self.head_kd is not None:
            logits = (logits + self.head_kd(s)) / 2
        return logits.mean(0)

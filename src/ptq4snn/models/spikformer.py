"""Spikformer, with its authors' parameter names (Zhou et al., ICLR 2023).

    patch embedding  4 x (conv3x3 -> bn -> lif [-> max-pool]) = feat;   x = feat + lif(bn(conv3x3 feat))
    attention        q, k, v = lif(bn(proj x));   a = lif(scale * q k^T v)  per head;   x += lif(bn(proj a))
    mlp              x += lif(bn(proj(lif(bn(proj x)))))
    head             linear(mean over tokens and time)

Every branch ends in spikes, so x holds integers up to 2 + 2 * depth. The three published programs differ in
how a token is projected and so in names and state layouts:

    "linear"  CIFAR      Linear on [T, B, N, C]
    "conv2d"  ImageNet   1x1 convolutions on [T, B, C, H, W], the attention's on [T, B, C, N]
    "conv1d"  events     1x1 convolutions on [T, B, C, N]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import STAGES, PatchEmbedding, per_step

__all__ = ["Spikformer", "as_sequence", "attend"]

ATTENTION_THRESHOLD = 0.5
KINDS = ("linear", "conv1d", "conv2d")


def as_sequence(x: Tensor, T: int) -> Tensor:
    """[T, B, C, H, W] of a still image [B, C, H, W] or of event frames [B, T, C, H, W]."""
    return x.unsqueeze(0).repeat(T, 1, 1, 1, 1) if x.dim() == 4 else x.transpose(0, 1).contiguous()


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, scale: float, inner_first: bool) -> Tensor:
    """scale * q k^T v of spikes [T, B, N, C], per head; the same integers in either order of products."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(2, 3) for x in (q, k, v))  # [T, B, heads, N, d]
    if inner_first:
        out = (q @ (k.transpose(-1, -2) @ v)) * scale
    else:
        out = ((q @ k.transpose(-1, -2)) @ v) * scale
    return out.transpose(2, 3).flatten(3)  # [T, B, N, C]


class SpikeEmbedding(PatchEmbedding):
    """Every stage ends in spikes, and so does the position embedding that is added to them."""

    def forward(self, x: Tensor) -> Tensor:  # [T, B, in_channels, H, W] -> [T, B, width, H', W']
        for i, suffix in enumerate(STAGES):
            x = self.pooled(self.fire(self.current(x, suffix), suffix), i)
        spikes: Tensor = self.rpe_lif(self.position(x))
        return spikes + x


class Projection(nn.Module):
    """Base of the attention and the mlp: `name`_linear or `name`_conv, `name`_bn and `name`_lif."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.suffix = "linear" if kind == "linear" else "conv"

    def add(self, name: str, cin: int, cout: int, bias: bool = True, flat: bool = False) -> None:
        """`flat`: tokens on one axis also where the others have rows and columns."""
        if self.kind == "linear":
            self.add_module(f"{name}_linear", nn.Linear(cin, cout))
        else:
            plane = self.kind == "conv2d" and not flat
            conv = nn.Conv2d(cin, cout, 1, bias=bias) if plane else nn.Conv1d(cin, cout, 1, bias=bias)
            self.add_module(f"{name}_conv", conv)
        plane = self.kind == "conv2d" and not flat
        self.add_module(f"{name}_bn", nn.BatchNorm2d(cout) if plane else nn.BatchNorm1d(cout))
        self.add_module(f"{name}_lif", LIF())

    def current(self, name: str, x: Tensor) -> Tensor:
        """bn(proj x), with the axes of x."""
        proj, bn = self.get_submodule(f"{name}_{self.suffix}"), self.get_submodule(f"{name}_bn")
        y = per_step(proj, x)
        return (
            per_step(bn, y.transpose(-1, -2)).transpose(-1, -2) if self.kind == "linear" else per_step(bn, y)
        )

    def spikes(self, name: str, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(f"{name}_lif")(self.current(name, x))
        return y


class Attention(Projection):
    def __init__(self, width: int, heads: int, scale: float, kind: str) -> None:
        super().__init__(kind)
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads, self.scale = heads, scale
        for name in "qkv":
            self.add(name, width, width, bias=False, flat=True)
        if kind == "conv1d":
            self.res_lif = LIF()  # not used, as in the original
        self.attn_lif = LIF(v_threshold=ATTENTION_THRESHOLD)
        self.add("proj", width, width, flat=True)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, N, C] if linear, [T, B, C, N] or [T, B, C, H, W] else
        flat = x.flatten(3)
        q, k, v = (self.spikes(name, flat) for name in "qkv")
        if self.kind == "linear":
            a = self.attn_lif(attend(q, k, v, self.heads, self.scale, inner_first=False))
        else:
            q, k, v = (y.transpose(-1, -2) for y in (q, k, v))
            a = attend(q, k, v, self.heads, self.scale, inner_first=self.kind == "conv2d")
            a = self.attn_lif(a.transpose(-1, -2))
        y: Tensor = self.get_submodule("proj_lif")(self.current("proj", a).reshape(x.shape))
        return y


class MLP(Projection):
    def __init__(self, width: int, hidden: int, kind: str) -> None:
        super().__init__(kind)
        self.add("fc1", width, hidden)
        self.add("fc2", hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.spikes("fc2", self.spikes("fc1", x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, mlp_ratio: int, scale: float, kind: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)  # not used, as in the original
        self.attn = Attention(width, heads, scale, kind)
        self.norm2 = nn.LayerNorm(width)  # not used, as in the original
        self.mlp = MLP(width, width * mlp_ratio, kind)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        y: Tensor = x + self.mlp(x)
        return y


class Spikformer(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[B, T, C, H, W]` is a sequence of event frames.

    The published models are (width, depth, heads) = (384, 4, 12) of kind "linear" with pooling 0011 (CIFAR),
    (512, 8, 8) and (768, 8, 8) of kind "conv2d" with pooling 1111 (ImageNet), and (256, 2, 16) of kind
    "conv1d" with pooling 1111, scale 1/4 and `tokens` = 64 unused position codes (CIFAR10-DVS).
    """

    def __init__(
        self,
        width: int = 384,
        depth: int = 4,
        heads: int = 12,
        num_classes: int = 10,
        in_channels: int = 3,
        T: int = 4,
        pooling: str = "0011",
        mlp_ratio: int = 4,
        scale: float = 0.125,
        kind: str = "linear",
        tokens: int | None = None,
    ) -> None:
        super().__init__()
        if width % 8:
            raise ValueError(f"width must be a multiple of 8, got {width}")
        if len(pooling) != 4 or set(pooling) - {"0", "1"}:
            raise ValueError(f"pooling must be four digits 0 or 1, got {pooling!r}")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.T, self.kind = T, kind
        self.patch_embed = SpikeEmbedding(in_channels, width, pooling)
        if tokens is not None:  # not used, as in the original
            self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
            self.norm = nn.LayerNorm(width)
        self.block = nn.ModuleList(Block(width, heads, mlp_ratio, scale, kind) for _ in range(depth))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(as_sequence(x, self.T))
        if self.kind != "conv2d":
            x = x.flatten(3)
        if self.kind == "linear":
            x = x.transpose(-1, -2)
        for block in self.block:
            x = block(x)
        x = x.mean(2) if self.kind == "linear" else x.flatten(3).mean(3)  # [T, B, C]
        logits: Tensor = self.head(x.mean(0))  # [B, classes]
        return logits

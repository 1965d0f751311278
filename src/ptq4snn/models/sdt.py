"""Spike-Driven Transformer, first version, with its authors' parameter names (Yao et al., NeurIPS 2023).

    patch embedding  3 x (conv -> bn -> lif [-> max-pool]); conv -> bn [-> max-pool] = feat
                     stream = feat + bn(conv(lif(feat)))
    attention        s = lif(stream);  q, k, v = lif(bn(conv1x1 s));  kv = lif(sum over tokens of k * v)
                     stream += bn(conv1x1(q * kv))
    mlp              stream += bn(conv1x1(lif(bn(conv1x1(lif stream)))))
    head             linear(lif(mean over positions)), averaged over time

Event cameras (`dvs`): 3x3 max-pools spread the spikes of the attention, the last two over (token, channel).
"""

from __future__ import annotations

from torch import Tensor, nn

from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import STAGES, PatchEmbedding, per_step

__all__ = ["SpikeDrivenTransformer"]

ATTENTION_THRESHOLD = 0.5


class MembraneEmbedding(PatchEmbedding):
    """The last stage's current goes on as the residual stream; `rpe_lif` is not used, as in the original."""

    def forward(self, x: Tensor) -> Tensor:  # [T, B, in_channels, H, W]
        for i in range(3):
            x = self.pooled(self.fire(self.current(x, STAGES[i]), STAGES[i]), i)
        features = self.pooled(self.current(x, STAGES[3]), 3)
        return self.position(self.fire(features, STAGES[3])) + features


class Attention(nn.Module):
    """Spike-driven self-attention: masks and sums, no products of numbers."""

    def __init__(self, width: int, heads: int, dvs: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.pool = nn.MaxPool3d((1, 3, 3), (1, 1, 1), (0, 1, 1)) if dvs else nn.Identity()
        for name in "qkv":
            self.add_module(f"{name}_conv", nn.Conv2d(width, width, 1, bias=False))
            self.add_module(f"{name}_bn", nn.BatchNorm2d(width))
            self.add_module(f"{name}_lif", LIF())
        self.attn_lif = LIF(v_threshold=ATTENTION_THRESHOLD)  # not used, as in the original
        self.talking_heads = nn.Conv1d(heads, heads, 1, bias=False)  # not used, as in the original
        self.talking_heads_lif = LIF(v_threshold=ATTENTION_THRESHOLD)
        self.proj_conv = nn.Conv2d(width, width, 1)
        self.proj_bn = nn.BatchNorm2d(width)
        self.shortcut_lif = LIF()

    def spikes(self, x: Tensor, name: str) -> Tensor:
        conv, bn = self.get_submodule(f"{name}_conv"), self.get_submodule(f"{name}_bn")
        y: Tensor = self.get_submodule(f"{name}_lif")(per_step(bn, per_step(conv, x)))
        return y

    def by_head(self, x: Tensor) -> Tensor:
        """[T, B, C, H, W] -> [T, B, heads, tokens, C / heads]."""
        x = x.flatten(3).transpose(-1, -2)
        return x.reshape(*x.shape[:3], self.heads, -1).permute(0, 1, 3, 2, 4).contiguous()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        s = self.shortcut_lif(x)
        q = self.by_head(self.spikes(s, "q"))
        k = self.by_head(self.pool(self.spikes(s, "k")))
        v = self.by_head(self.pool(self.spikes(s, "v")))
        kv = self.pool(k.mul(v)).sum(-2, keepdim=True)
        y = self.pool(q.mul(self.talking_heads_lif(kv)))
        y = y.transpose(3, 4).reshape(x.shape)
        return per_step(self.proj_bn, per_step(self.proj_conv, y)) + x


class MLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1_conv, self.fc1_bn, self.fc1_lif = nn.Conv2d(width, hidden, 1), nn.BatchNorm2d(hidden), LIF()
        self.fc2_conv, self.fc2_bn, self.fc2_lif = nn.Conv2d(hidden, width, 1), nn.BatchNorm2d(width), LIF()

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        y = per_step(self.fc1_bn, per_step(self.fc1_conv, self.fc1_lif(x)))
        return per_step(self.fc2_bn, per_step(self.fc2_conv, self.fc2_lif(y))) + x


class Block(nn.Module):
    def __init__(self, width: int, heads: int, mlp_ratio: int, dvs: bool) -> None:
        super().__init__()
        self.attn = Attention(width, heads, dvs)
        self.mlp = MLP(width, width * mlp_ratio)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mlp(self.attn(x))
        return y


class SpikeDrivenTransformer(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[B, T, C, H, W]` is a sequence of event frames.

    Any input size will do that the pooling leaves whole; the published models are
    (width, depth) = (256, 2), (512, 2) with pooling 0011 and (512, 8), (768, 8) with pooling 1111.
    """

    def __init__(
        self,
        width: int = 256,
        depth: int = 2,
        heads: int = 8,
        num_classes: int = 10,
        in_channels: int = 3,
        T: int = 4,
        pooling: str = "0011",
        mlp_ratio: int = 4,
        dvs: bool = False,
    ) -> None:
        super().__init__()
        if width % 8:
            raise ValueError(f"width must be a multiple of 8, got {width}")
        if len(pooling) != 4 or set(pooling) - {"0", "1"}:
            raise ValueError(f"pooling must be four digits 0 or 1, got {pooling!r}")
        self.T = T
        self.patch_embed = MembraneEmbedding(in_channels, width, pooling)
        self.block = nn.ModuleList(Block(width, heads, mlp_ratio, dvs) for _ in range(depth))
        self.head_lif = LIF()
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(0).repeat(self.T, 1, 1, 1, 1) if x.dim() == 4 else x.transpose(0, 1).contiguous()
        x = self.patch_embed(x)
        for block in self.block:
            x = block(x)
        x = self.head_lif(x.flatten(3).mean(3))
        logits: Tensor = self.head(x).mean(0)  # [B, classes]
        return logits

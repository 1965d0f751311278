"""QKFormer, with its authors' parameter names (Zhou et al., NeurIPS 2024).

    patch embedding   main branch of (conv3x3 -> bn [-> max-pool] -> lif), side branch lif(bn(conv1x1 x));
                      x = main + side
    token attention   q, k = lif(bn(conv1x1 x));   m = lif(sum of q over a head's channels)   [heads, 1, N]
                      x += lif(bn(conv1x1(m * k)))
    self-attention    q, k, v = lif(bn(conv1x1 x));   a = lif(scale * q (k^T v)) per head
                      x += lif(bn(conv1x1 a))
    mlp               x += lif(bn(conv1x1(lif(bn(conv1x1 x)))))
    head              linear(mean over positions and time)

Stages: patch embedding, then blocks of token attention; the last stage has self-attention.

The original runs the last neuron of the self-attention on [T * B, C, N], time and batch on one axis, so that
its state runs on from one sample to the next. `merged_state` does the same; without it every sample
has its own. Published accuracies were measured with the merged state at batch 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.models.spikformer import ATTENTION_THRESHOLD, as_sequence, attend

__all__ = ["CIFAR", "EVENTS", "IMAGENET", "Layout", "QKFormer", "Step"]


class Stage(nn.Module):
    """Names in this model are `prefix`_conv, `prefix`_bn, `prefix`_lif."""

    def add(self, prefix: str, conv: nn.Conv1d | nn.Conv2d) -> None:
        self.add_module(f"{prefix}_conv", conv)
        norm = nn.BatchNorm2d if isinstance(conv, nn.Conv2d) else nn.BatchNorm1d
        self.add_module(f"{prefix}_bn", norm(conv.out_channels))
        self.add_module(f"{prefix}_lif", LIF())

    def current(self, prefix: str, x: Tensor) -> Tensor:
        conv, bn = self.get_submodule(f"{prefix}_conv"), self.get_submodule(f"{prefix}_bn")
        return per_step(bn, per_step(conv, x))

    def fire(self, prefix: str, current: Tensor) -> Tensor:
        spikes: Tensor = self.get_submodule(f"{prefix}_lif")(current)
        return spikes

    def spikes(self, prefix: str, x: Tensor) -> Tensor:
        return self.fire(prefix, self.current(prefix, x))


@dataclass(frozen=True)
class Step:
    """A convolution of a patch embedding: its name, its channels as a part of the stage's, its max-pool."""

    name: str
    divisor: int = 1
    pool: str | None = None


@dataclass(frozen=True)
class Layout:
    """What the three published programs do differently."""

    embeddings: tuple[tuple[Step, ...], ...]  # the main branches of the stages
    branch: int  # the side branch of the first stage starts behind that many convolutions
    mlp: str = "mlp"
    attention: str = "ssa"


CIFAR = Layout(
    (
        (Step("proj", 2), Step("proj1")),
        (Step("proj3"), Step("proj4", pool="proj4_maxpool")),
        (Step("proj3"), Step("proj4", pool="proj4_maxpool")),
    ),
    branch=1,
)
IMAGENET = Layout(
    (
        (Step("proj", 2, "proj_maxpool"), Step("proj1", pool="proj1_maxpool"), Step("proj2")),
        (Step("proj3", pool="proj3_maxpool"), Step("proj4")),
        (Step("proj3", pool="proj3_maxpool"), Step("proj4")),
    ),
    branch=1,
    mlp="fc",
    attention="attn",
)
EVENTS = Layout(
    (
        (
            Step("proj", 8), Step("proj1", 4, "maxpool1"), Step("proj2", 2, "maxpool2"),
            Step("proj3", 1, "maxpool3"),
        ),
        (Step("proj"), Step("proj4", pool="proj4_maxpool")),
    ),
    branch=2,
)  # fmt: skip
LAYOUTS = {"cifar": CIFAR, "imagenet": IMAGENET, "events": EVENTS}


class PatchEmbedding(Stage):
    """Each max-pool (3x3, stride 2, in front of the neuron) halves the resolution."""

    def __init__(self, cin: int, width: int, steps: Sequence[Step], branch: int) -> None:
        super().__init__()
        self.steps, self.branch = tuple(steps), branch
        channels, side, stride = cin, cin, 1
        for i, step in enumerate(steps):
            if i == branch:
                side, stride = channels, 1
            self.add(step.name, nn.Conv2d(channels, width // step.divisor, 3, 1, 1, bias=False))
            channels = width // step.divisor
            if step.pool is not None:
                self.add_module(step.pool, nn.MaxPool2d(3, 2, 1))
                stride *= 2
        self.add("proj_res", nn.Conv2d(side, width, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:  # [T, B, cin, H, W] -> [T, B, width, H', W']
        side = x
        for i, step in enumerate(self.steps):
            if i == self.branch:
                side = x
            current = self.current(step.name, x)
            if step.pool is not None:
                current = per_step(self.get_submodule(step.pool), current)
            x = self.fire(step.name, current)
        return x + self.spikes("proj_res", side)


class TokenAttention(Stage):
    """A mask of tokens from the sum of q, one for each head; no products of numbers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.add("q", nn.Conv1d(width, width, 1, bias=False))
        self.add("k", nn.Conv1d(width, width, 1, bias=False))
        self.attn_lif = LIF(v_threshold=ATTENTION_THRESHOLD)
        self.add("proj", nn.Conv1d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        q, k = (
            self.spikes(n, x.flatten(3)).unflatten(2, (self.heads, -1)) for n in "qk"
        )  # [.., heads, d, N]
        mask = self.attn_lif(q.sum(3, keepdim=True))
        return self.fire("proj", self.current("proj", (mask * k).flatten(2, 3)).reshape(x.shape))


class SelfAttention(Stage):
    def __init__(self, width: int, heads: int, scale: float, merged_state: bool) -> None:
        super().__init__()
        self.heads, self.scale, self.merged_state = heads, scale, merged_state
        for name in "qkv":
            self.add(name, nn.Conv1d(width, width, 1, bias=False))
        self.attn_lif = LIF(v_threshold=ATTENTION_THRESHOLD)
        self.add("proj", nn.Conv1d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        q, k, v = (self.spikes(name, x.flatten(3)).transpose(-1, -2) for name in "qkv")
        a = attend(q, k, v, self.heads, self.scale, inner_first=True).transpose(-1, -2)  # [T, B, C, N]
        current = self.current("proj", self.attn_lif(a))
        if self.merged_state:  # one long sequence of one sample
            current = current.flatten(0, 1).unsqueeze(1)
        return self.fire("proj", current).reshape(x.shape)


class MLP(Stage):
    def __init__(self, width: int, hidden: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.add(f"{name}1", nn.Conv2d(width, hidden, 1))
        self.add(f"{name}2", nn.Conv2d(hidden, width, 1))

    def forward(self, x: Tensor) -> Tensor:  # [T, B, C, H, W]
        return self.spikes(f"{self.name}2", self.spikes(f"{self.name}1", x))


class Block(nn.Module):
    def __init__(self, name: str, attention: nn.Module, mlp: MLP) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, attention)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.get_submodule(self.name)(x)
        y: Tensor = x + self.mlp(x)
        return y


class QKFormer(nn.Module):
    """`x[B, C, H, W]` is a still image shown for T steps; `x[B, T, C, H, W]` is a sequence of event frames.

    `width` is that of the last stage, each one before has half of the next. The published models are
    width 384, depths (1, 1, 2), 8 heads of layout "cifar"; widths 384, 512, 768 with 6, 8, 12 heads, depths
    (1, 2, 7) of layout "imagenet"; width 256, depths (1, 1), 16 heads, mlp_ratio 1 of layout "events".
    """

    def __init__(
        self,
        width: int = 384,
        depths: Sequence[int] = (1, 1, 2),
        heads: int = 8,
        num_classes: int = 10,
        in_channels: int = 3,
        T: int = 4,
        mlp_ratio: int = 4,
        scale: float = 0.125,
        layout: str = "cifar",
        merged_state: bool = False,
    ) -> None:
        super().__init__()
        if layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
        form = LAYOUTS[layout]
        self.T, self.stages = T, len(form.embeddings)
        if len(depths) != self.stages:
            raise ValueError(f"layout {layout} has {self.stages} stages, got {len(depths)} depths")
        widths = [width >> (self.stages - 1 - i) for i in range(self.stages)]
        if any(w % heads for w in widths) or widths[0] << (self.stages - 1) != width or widths[0] % 8:
            raise ValueError(
                f"widths {widths} are not all multiples of 8 and of {heads} heads, or not halves"
            )
        cin = in_channels
        for i, (w, depth) in enumerate(zip(widths, depths, strict=True)):
            last = i == self.stages - 1
            branch = form.branch if i == 0 else 0
            self.add_module(f"patch_embed{i + 1}", PatchEmbedding(cin, w, form.embeddings[i], branch))
            blocks = nn.ModuleList()
            for _ in range(depth):
                attention = SelfAttention(w, heads, scale, merged_state) if last else TokenAttention(w, heads)
                blocks.append(
                    Block(form.attention if last else "tssa", attention, MLP(w, w * mlp_ratio, form.mlp))
                )
            self.add_module(f"stage{i + 1}", blocks)
            cin = w
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = as_sequence(x, self.T)
        for i in range(1, self.stages + 1):
            x = self.get_submodule(f"patch_embed{i}")(x)
            blocks = self.get_submodule(f"stage{i}")
            for block in blocks.children():
                x = block(x)
        logits: Tensor = self.head(x.flatten(3).mean(3).mean(0))  # [B, classes]
        return logits

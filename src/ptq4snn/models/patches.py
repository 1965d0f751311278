"""Shared by the backbones: modules applied per time step, the patch embedding of SDT and Spikformer."""

from __future__ import annotations

from torch import Tensor, nn

from ptq4snn.models.neuron import LIF

__all__ = ["STAGES", "PatchEmbedding", "per_step"]

STAGES = ("", "1", "2", "3")


def per_step(module: nn.Module, x: Tensor) -> Tensor:
    """Apply a stateless module to x[T, B, ...] with time folded into the batch."""
    y: Tensor = module(x.flatten(0, 1))
    return y.view(x.shape[0], x.shape[1], *y.shape[1:])


class PatchEmbedding(nn.Module):
    """`pooling` has a character for each of the four stages; 1 halves the resolution there."""

    def __init__(self, in_channels: int, width: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        widths = (in_channels, width // 8, width // 4, width // 2, width)
        for i, suffix in enumerate(STAGES):
            conv = nn.Conv2d(widths[i], widths[i + 1], 3, 1, 1, bias=False)
            self.add_module(f"proj_conv{suffix}", conv)
            self.add_module(f"proj_bn{suffix}", nn.BatchNorm2d(widths[i + 1]))
            self.add_module(f"proj_lif{suffix}", LIF())
            self.add_module(f"maxpool{suffix}", nn.MaxPool2d(3, 2, 1))
        self.rpe_conv = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.rpe_bn, self.rpe_lif = nn.BatchNorm2d(width), LIF()

    def current(self, x: Tensor, suffix: str) -> Tensor:
        """bn(conv x) of a stage."""
        conv, bn = self.get_submodule(f"proj_conv{suffix}"), self.get_submodule(f"proj_bn{suffix}")
        return per_step(bn, per_step(conv, x))

    def fire(self, x: Tensor, suffix: str) -> Tensor:
        spikes: Tensor = self.get_submodule(f"proj_lif{suffix}")(x)
        return spikes

    def pooled(self, x: Tensor, stage: int) -> Tensor:
        pool = self.get_submodule(f"maxpool{STAGES[stage]}")
        return per_step(pool, x) if self.pooling[stage] == "1" else x

    def position(self, spikes: Tensor) -> Tensor:
        """Current of the relative position embedding."""
        return per_step(self.rpe_bn, per_step(self.rpe_conv, spikes))

"""Every operation between two layers of spikes: the program gives the simulation's bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.small import between, images, quantized
from oracles.simulation import check_same
from torch import Tensor, nn
from torch.nn import functional as F


def steps(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`f` of [T * B, ...]."""

    def run(x: Tensor) -> Tensor:
        y = f(x.flatten(0, 1))
        return y.view(*x.shape[:2], *y.shape[1:])

    return run


def buffered(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        out[t] = x[t]
    return out


def attention(x: Tensor) -> Tensor:
    y = x.flatten(3).transpose(-1, -2)  # [T, B, N, C]
    z = (y @ y.transpose(-1, -2)) @ y * 0.125
    return z.transpose(-1, -2).reshape(x.shape)


def one_row(x: Tensor) -> Tensor:
    """A mask of positions and one of channels."""
    return x * x.amax((3, 4), keepdim=True) + x.sum(2, keepdim=True)


ORDER = torch.tensor([3, 1, 1, 0])
BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "channels joined": lambda x: torch.cat([x, 1 - x, x.roll(1, 3)], 2),
    "positions joined": lambda x: torch.cat([x, x * x.flip(2)], 3),
    "halves": lambda x: x[:, :, :2] + x[:, :, 2:],
    "every other": lambda x: x[:, :, ::2, 1::2, ::2],
    "chosen": lambda x: x[:, :, ORDER],
    "transposed": lambda x: x.transpose(3, 4) + x,
    "shuffled": steps(lambda x: F.pixel_shuffle(x, 2)),
    "unshuffled": steps(lambda x: F.pixel_unshuffle(x, 2)),
    "nearest": steps(lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "bilinear 2": steps(lambda x: F.interpolate(x[..., ::2, ::2], scale_factor=2, mode="bilinear")),
    "bilinear 8": steps(lambda x: F.interpolate(x[..., ::8, ::4], size=(8, 8), mode="bilinear")),
    "max pool": steps(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max pool, rounded up": steps(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "max pool of channels": lambda x: F.max_pool3d(x, (3, 3, 1), 1, (1, 1, 0)),
    "average pool": steps(lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "adaptive": steps(lambda x: F.adaptive_avg_pool2d(x, 2)),
    "adaptive, upwards": steps(lambda x: F.adaptive_avg_pool2d(x, 16)),
    "adaptive maximum": steps(lambda x: F.adaptive_max_pool2d(x, 2)),
    "mean of channels": lambda x: x.mean(2, keepdim=True),
    "mean of rows": lambda x: x.mean(3, keepdim=True) + x,
    "two quanta": lambda x: x / 2 + F.avg_pool3d(x, (1, 2, 2), 1)[..., :1, :1],
    "padded": steps(lambda x: F.pad(x, [1, 0, 2, 1])),
    "padded, then added": steps(lambda x: F.pad(x, [1, 0]) + F.pad(x, [0, 1])),
    "more channels": steps(lambda x: F.pad(x[:, :, ::2, ::2], [0, 0, 0, 0, 1, 2])),
    "negated": lambda x: 2 - x,
    "clipped": lambda x: (x + x.roll(1, 3) + x.roll(2, 4)).clamp(0, 2),
    "hard tanh": lambda x: F.hardtanh(x + x.roll(1, 2)),
    "relu": lambda x: F.relu(x - x.roll(1, 2)),
    "least": lambda x: torch.minimum(x, x.roll(1, 3)) + torch.maximum(x, x.roll(1, 4)),
    "compared": lambda x: (x + x.roll(1, 3) > 1.5).float() + (x <= x.roll(1, 4)).float(),
    "logic": lambda x: (x.bool() & x.roll(1, 3).bool()).float() + torch.logical_xor(x, x.roll(1, 4)),
    "not": lambda x: (~x.bool() | (x.roll(1, 2) == 1)).float(),
    "buffer": buffered,
    "attention": attention,
    "broadcast": one_row,
    "outer": lambda x: x[:, :, :, :, :1] * x[:, :, :, :1],
    "repeated": lambda x: x.repeat(1, 1, 1, 2, 1),
}


def check(model: nn.Module) -> None:
    q = quantized(model, images())
    assert q.program is not None, q.not_lowered
    trace = check_same(q, q.program, images(3, seed=1))
    assert all(0.02 < s.mean() < 0.98 for s in trace.spikes.values())


@pytest.mark.parametrize("name", BODIES)
def test_between_two_layers(name: str) -> None:
    check(between(BODIES[name]))


SECOND: dict[str, Callable[[], nn.Module]] = {
    "depthwise": lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=4),
    "groups": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "same": lambda: nn.Conv2d(4, 5, (4, 3), padding="same", dilation=(1, 2)),
    "valid": lambda: nn.Conv2d(4, 5, 3, padding="valid", dilation=2),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 12)),
    "tokens": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(64, 9)),
    "volume": lambda: nn.Sequential(nn.Unflatten(2, (2, 4)), nn.Conv3d(4, 3, (2, 3, 3), padding=(0, 1, 0))),
    "padded maximum": lambda: nn.Sequential(nn.Conv2d(4, 5, 3), nn.ZeroPad2d(1), nn.MaxPool2d(2)),
    "line": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 5, 2, 2)),
}


@pytest.mark.parametrize("name", SECOND)
def test_projection(name: str) -> None:
    check(between(lambda x: x, SECOND[name]))

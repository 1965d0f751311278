"""What every structure must stand: the program is the simulation, also behind a file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn import runtime
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.runtime.native import available


def seeded(build: Callable[[], nn.Module], seed: int = 1, gain: float = 2.0) -> nn.Module:
    """The model with weights of its own seed, matrices larger by `gain` so that its neurons fire."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build().eval()
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() > 1:
                p.mul_(gain)
    return net


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def quantized(
    net: nn.Module, x: Tensor, tmp_path: Path, recipe: str = "fast+w4m4", **how: Any
) -> QuantizedModel:
    """Quantize, lower, save, run on every kernel and load again: the same bits everywhere."""
    q = ptq4snn.quantize(net, x, recipe, **how)
    assert q.program is not None, q.not_lowered
    expected = q(x)
    q.save(tmp_path / "q.ptq")
    for kernels in ("numpy", *available()):
        found = runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy())
        np.testing.assert_array_equal(found, expected.numpy())
    other = copy.deepcopy(net)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(0.5)  # a bundle has its own weights
    torch.testing.assert_close(ptq4snn.load(tmp_path / "q.ptq", other)(x), expected, rtol=0, atol=0)
    return q


def agreement(net: nn.Module, q: QuantizedModel, x: Tensor) -> float:
    """Share of samples with the same largest output."""
    with torch.no_grad():
        return float((net(x).argmax(-1) == q(x).argmax(-1)).double().mean())

"""The conversion of benchmarks/converted_resnet.py: with more steps the spikes become the ReLU network."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

FILE = Path(__file__).parents[2] / "benchmarks" / "converted_resnet.py"


def benchmark() -> Any:
    found = importlib.util.spec_from_file_location("converted_resnet", FILE)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def checkpoint() -> dict[str, Tensor]:
    """Random weights by the names of the original."""
    g = torch.Generator().manual_seed(0)
    weights: dict[str, Tensor] = {}

    def layer(conv: str, norm: str, a: int, b: int) -> None:
        weights[f"{conv}.weight"] = torch.randn(b, a, 3, 3, generator=g) * (2 / (9 * a)) ** 0.5
        weights[f"{norm}.weight"] = torch.rand(b, generator=g) + 0.5
        weights[f"{norm}.bias"] = torch.randn(b, generator=g) * 0.1
        weights[f"{norm}.running_mean"] = torch.randn(b, generator=g) * 0.1
        weights[f"{norm}.running_var"] = torch.rand(b, generator=g) + 0.5

    layer("conv1", "bn1", 3, 16)
    width = 16
    for i, after in enumerate((16, 32, 64)):
        for j in range(3):
            layer(f"layer{i + 1}.{j}.conv1", f"layer{i + 1}.{j}.bn1", width, after)
            layer(f"layer{i + 1}.{j}.conv2", f"layer{i + 1}.{j}.bn2", after, after)
            width = after
    weights["linear.weight"] = torch.randn(10, 64, generator=g) * 0.1
    weights["linear.bias"] = torch.randn(10, generator=g)
    return weights


def relu_network(w: dict[str, Tensor], x: Tensor) -> Tensor:
    def layer(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        y = F.conv2d(x, w[f"{conv}.weight"], stride=stride, padding=1)
        mean, var, scale, offset = (
            w[f"{norm}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(y, mean, var, scale, offset)

    x = F.relu(layer(x, "conv1", "bn1"))
    for i in range(3):
        for j in range(3):
            name, narrows = f"layer{i + 1}.{j}", i > 0 and j == 0
            y = F.relu(layer(x, f"{name}.conv1", f"{name}.bn1", 2 if narrows else 1))
            y = layer(y, f"{name}.conv2", f"{name}.bn2")
            if narrows:
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, x.shape[1] // 2, x.shape[1] // 2))
            x = F.relu(y + x)
    return F.linear(x.mean((2, 3)), w["linear.weight"], w["linear.bias"])


def test_more_steps_come_nearer_to_the_relu_network(tmp_path: Path) -> None:
    weights = checkpoint()
    torch.save({"state_dict": {f"module.{k}": v for k, v in weights.items()}}, tmp_path / "net.th")
    x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = relu_network(weights, x)
    size = float((expected - expected.mean(0)).std())
    errors = []
    for steps in (16, 128, 512):
        module = benchmark()
        module.PERCENTILE = 1.0  # nothing is clipped
        net = module.converted(tmp_path / "net.th", x, steps)
        errors.append(float((net(x) - expected).abs().mean()) / size)
    assert errors[1] < errors[0] / 4 and errors[2] < errors[1] / 3, errors  # as 1 / T

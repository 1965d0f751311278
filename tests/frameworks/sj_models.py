"""Small SpikingJelly models of both generations, fixed weights; neurons fire 5 to 40 % on `inputs()`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

STEPS = 4


def inputs(batch: int = 4, seed: int = 0) -> Tensor:
    """Images [B, 2, 12, 12] with values in [0, 1]."""
    return torch.rand(batch, 2, 12, 12, generator=torch.Generator().manual_seed(seed))


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build with its own random state and trained-looking BatchNorms, and leave the caller's state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, mean=0.1, std=0.2)
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.02, 0.08)
        return net.eval()


class MultiStep(nn.Module):
    """Layers of `spikingjelly...layer` and nodes, all in step_mode 'm' on [T, B, ...]: logits [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            layer.Conv2d(2, 8, 3, padding=1, bias=False),
            layer.BatchNorm2d(8),
            neuron.IFNode(v_threshold=1.5),
            layer.MaxPool2d(2),
            layer.Conv2d(8, 8, 3, padding=1, bias=False),
            layer.BatchNorm2d(8),
            neuron.LIFNode(tau=2.0, v_threshold=1.0, v_reset=0.0),
            layer.MaxPool2d(2),
        )
        self.fc = layer.Linear(72, 10)
        functional.set_step_mode(self, "m")

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 12, 12]
        functional.reset_net(self)
        x = x.unsqueeze(0).repeat(STEPS, 1, 1, 1, 1)  # [T, B, 2, 12, 12]
        return self.fc(self.features(x).flatten(2)).mean(0)


class Folded(nn.Module):
    """T folded into the batch for the projections by SeqToANNContainer, nodes in 'm': logits [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = layer.SeqToANNContainer(nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.lif1 = neuron.LIFNode(tau=2.0, decay_input=False, v_threshold=1.2, v_reset=None, step_mode="m")
        self.block = layer.SeqToANNContainer(
            nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        )
        self.lif2 = neuron.ParametricLIFNode(init_tau=2.0, v_threshold=0.8, v_reset=-0.2, step_mode="m")
        self.head = layer.SeqToANNContainer(nn.Flatten(1), nn.Linear(288, 10))

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 12, 12]
        functional.reset_net(self)
        x = x.unsqueeze(0).repeat(STEPS, 1, 1, 1, 1)
        return self.head(self.lif2(self.block(self.lif1(self.stem(x))))).mean(0)


class Looped(nn.Module):
    """Single-step nodes, the time loop in Python: logits [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.lif1 = neuron.LIFNode(tau=1.5, v_threshold=1.2)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(288, 32)
        self.lif2 = neuron.IFNode(v_threshold=0.5, v_reset=None)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 12, 12]
        functional.reset_net(self)
        outputs = []
        for _ in range(STEPS):
            y = self.pool(self.lif1(self.bn(self.conv(x))))
            outputs.append(self.fc2(self.lif2(self.fc1(y.flatten(1)))))
        return torch.stack(outputs).mean(0)


class ClockDriven(nn.Module):
    """The layout of the first spike-driven transformers' code (0.0.0.0.14 only): logits [B, 10]."""

    def __init__(self) -> None:
        from spikingjelly.clock_driven import neuron as clock

        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.lif1 = clock.MultiStepLIFNode(tau=2.0, detach_reset=True, backend="torch")
        self.fc1 = nn.Linear(1152, 32)
        self.lif2 = clock.MultiStepIFNode(v_threshold=0.6, v_reset=None, backend="torch")
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 12, 12]
        from spikingjelly.clock_driven import functional as clock_functional

        clock_functional.reset_net(self)
        y = self.bn(self.conv(x)).unsqueeze(0).repeat(STEPS, 1, 1, 1, 1)
        y = self.fc1(self.lif1(y).flatten(2))
        return self.fc2(self.lif2(y)).mean(0)


def conv_net(seed: int = 0) -> nn.Module:
    return seeded(MultiStep, seed)


def folded_net(seed: int = 0) -> nn.Module:
    return seeded(Folded, seed)


def looped_net(seed: int = 0) -> nn.Module:
    return seeded(Looped, seed)


def clock_driven_net(seed: int = 0) -> nn.Module:
    return seeded(ClockDriven, seed)


def all_nets() -> dict[str, Callable[[], nn.Module]]:
    """The models that the installed generation has."""
    nets: dict[str, Callable[[], nn.Module]] = {"conv": conv_net, "folded": folded_net, "looped": looped_net}
    try:
        import spikingjelly.clock_driven.neuron  # noqa: F401
    except ImportError:
        return nets
    return {**nets, "clock_driven": clock_driven_net}

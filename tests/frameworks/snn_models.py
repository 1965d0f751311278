"""Small snnTorch models with fixed weights whose neurons fire 5 to 40 % on `inputs()`."""

from __future__ import annotations

from collections.abc import Callable

import snntorch as snn
import torch
from snntorch import utils
from torch import Tensor, nn

STEPS = 8


def inputs(batch: int = 4, seed: int = 0) -> Tensor:
    """Images [B, 1, 12, 12] with values in [0, 1]."""
    return torch.rand(batch, 1, 12, 12, generator=torch.Generator().manual_seed(seed))


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build with its own random state, and leave the caller's alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


class FullyConnected(nn.Module):
    """Explicit state, looped over T: returns spike counts [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(144, 64)
        self.lif1 = snn.Leaky(beta=0.9, threshold=0.6)
        self.fc2 = nn.Linear(64, 10)
        self.lif2 = snn.Leaky(beta=0.8, threshold=0.3, reset_mechanism="zero")

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        counts = []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x.flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            counts.append(spk2)
        return torch.stack(counts).sum(0)


class Convolutional(nn.Module):
    """init_hidden, reset by snntorch.utils.reset: returns spike counts [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.pool1 = nn.MaxPool2d(2)
        self.lif1 = snn.Leaky(beta=0.7, threshold=1.2, init_hidden=True)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.pool2 = nn.AvgPool2d(2)
        self.lif2 = snn.Leaky(beta=0.5, threshold=0.3, init_hidden=True, reset_mechanism="zero")
        self.fc = nn.Linear(72, 10)
        self.lif3 = snn.Leaky(beta=0.9, threshold=0.3, init_hidden=True, output=True)
        nn.init.uniform_(self.bn1.weight, 0.5, 1.5)
        nn.init.normal_(self.bn1.bias, std=0.2)
        assert self.bn1.running_mean is not None and self.bn1.running_var is not None
        self.bn1.running_mean.normal_(std=0.1)
        self.bn1.running_var.uniform_(0.02, 0.06)

    def forward(self, x: Tensor) -> Tensor:
        utils.reset(self)
        counts = []
        for _ in range(STEPS):
            y = self.lif1(self.pool1(self.bn1(self.conv1(x))))
            y = self.lif2(self.pool2(self.conv2(y)))
            spikes, _ = self.lif3(self.fc(y.flatten(1)))
            counts.append(spikes)
        return torch.stack(counts).sum(0)


class Recording(nn.Module):
    """Returns (spk_rec, mem_rec), both [T, B, 10], as snnTorch's tutorials do; per-neuron betas."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(144, 40)
        self.lif1 = snn.Leaky(beta=torch.rand(40) * 0.5 + 0.4, threshold=0.5, learn_beta=True)
        self.fc2 = nn.Linear(40, 10)
        self.lif2 = snn.Leaky(beta=0.85, threshold=torch.rand(10) * 0.2 + 0.2, learn_threshold=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mem1, mem2 = self.lif1.reset_mem(), self.lif2.reset_mem()
        spk_rec, mem_rec = [], []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x.flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spk_rec.append(spk2)
            mem_rec.append(mem2)
        return torch.stack(spk_rec), torch.stack(mem_rec)


class Readout(nn.Module):
    """The membrane of a last Leaky without reset is the output: [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(144, 48)
        self.lif1 = snn.Leaky(beta=0.9, threshold=0.6, reset_delay=False, reset_mechanism="zero")
        self.fc2 = nn.Linear(48, 10)
        self.readout = snn.Leaky(beta=0.95, threshold=1.0, reset_mechanism="none")

    def forward(self, x: Tensor) -> Tensor:
        mem1, mem2 = self.lif1.reset_mem(), self.readout.reset_mem()
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x.flatten(1)), mem1)
            _, mem2 = self.readout(self.fc2(spk1), mem2)
        return mem2


def fc_net(seed: int = 0) -> nn.Module:
    return seeded(FullyConnected, seed)


def conv_net(seed: int = 0) -> nn.Module:
    return seeded(Convolutional, seed)


def recording_net(seed: int = 0) -> nn.Module:
    return seeded(Recording, seed)


def readout_net(seed: int = 0) -> nn.Module:
    return seeded(Readout, seed)


ALL = {"fc": fc_net, "conv": conv_net, "recording": recording_net, "readout": readout_net}

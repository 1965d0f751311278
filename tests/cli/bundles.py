"""A small bundle on disk with the samples it was made from, and a Python that lacks packages."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import ptq4snn
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.modules.quantized import QuantizedModel

SRC = str(Path(__file__).parents[2] / "src")
BLOCKED = """
import sys
ABSENT = sys.argv.pop(1).split(",")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if (root := name.partition(".")[0]) in ABSENT:
            raise ModuleNotFoundError(f"No module named '{root}'", name=root)
sys.meta_path.insert(0, Blocker())
from ptq4snn.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Frames(nn.Module):
    """Sequences [B, T, 2, 5, 5], or still images [B, 2, 5, 5] shown for 4 steps, to logits [B, 3]."""

    def __init__(self, still: bool) -> None:
        super().__init__()
        self.still = still
        self.conv, self.n1 = nn.Conv2d(2, 6, 3, padding=1), LIF()
        self.deep, self.n2 = nn.Conv2d(6, 8, 3, 2, 1), LIF()
        self.head = nn.Linear(8 * 9, 3)
        g = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unsqueeze(0).repeat(4, 1, 1, 1, 1) if self.still else x.transpose(0, 1)
        y = self.n1(per_step(self.conv, x))
        y = self.n2(per_step(self.deep, y)).flatten(2)
        logits: torch.Tensor = self.head(y).mean(0)
        return logits


@dataclass(frozen=True)
class Made:
    bundle: Path
    input: Path
    x: NDArray[np.float32]
    q: QuantizedModel

    @property
    def logits(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.q(torch.from_numpy(self.x)).numpy()
        return found


def make(folder: Path, still: bool) -> Made:
    g = torch.Generator().manual_seed(1)
    shape = (6, 2, 5, 5) if still else (6, 4, 2, 5, 5)
    x = torch.randint(0, 256, shape, generator=g).float() / 64 - 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = ptq4snn.quantize(Frames(still).eval(), x, "fast+uniform+w4m4", holdout=2, sensitivity_batches=1)
    bundle, file = folder / "model.ptq", folder / "x.npy"
    q.save(bundle, page=True)
    np.save(file, x.numpy())
    return Made(bundle, file, x.numpy(), q)


def without_torch(*argv: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that cannot import torch."""
    return without("torch", *argv)


def without(absent: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that lacks packages: their names, separated by commas."""
    env = {**os.environ, "PYTHONPATH": SRC}
    command = [sys.executable, "-c", BLOCKED, absent, *argv]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)

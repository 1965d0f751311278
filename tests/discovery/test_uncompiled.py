"""Following a network does not load torch's compiler, and leaves one that is loaded alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, torch
from torch import nn
import ptq4snn
from ptq4snn.discovery.record import Recorder
from ptq4snn.models.neuron import LIF

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(4, 8), LIF(), nn.Linear(8, 3)
    def forward(self, x):
        return self.b(self.n(self.a(x).expand(2, *x.shape[:-1], 8))).mean(0)

torch.manual_seed(0)
first = ptq4snn.inspect(Net(), torch.rand(4, 4)).to_dict()
assert "torch._dynamo" not in sys.modules, "loaded"
import torch._dynamo
torch.manual_seed(0)
assert ptq4snn.inspect(Net(), torch.rand(4, 4)).to_dict() == first
code = Recorder.__torch_dispatch__.__wrapped__
assert getattr(code, "__dynamo_disable") is not code  # kept out, now that there is one
"""


def test_the_compiler_is_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

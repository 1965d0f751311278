"""`import ptq4snn`, and all that it needs to quantize a network of its own, imports no optional package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OPTIONAL = (
    "snntorch", "spikingjelly", "norse", "sinabs", "rockpool", "nir", "nirtorch", "lava", "onnx",
    "onnxruntime", "h5py", "jinja2", "rich", "PIL", "matplotlib", "torchvision", "vl_convert",
)  # fmt: skip
QUANTIZE = """
import torch, warnings
from ptq4snn.models.neuron import LIF
warnings.simplefilter("ignore")
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = torch.nn.Linear(8, 8), LIF(), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.b(self.n(self.a(x).expand(4, -1, -1))).mean(0)
q = ptq4snn.quantize(Net(), torch.rand(16, 8), "fast+w4m4", progress=False)
assert q.program is not None
"""


@pytest.mark.parametrize("more", ["", QUANTIZE], ids=["import", "quantize"])
def test_no_optional_package_is_imported(more: str) -> None:
    code = (
        f"import sys, ptq4snn\n{more}\n"
        f"print(*sorted(n for n in {OPTIONAL!r} if n in sys.modules), sep=',')\n"
        + ("" if more else "assert 'torch' not in sys.modules\n")
    )
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""

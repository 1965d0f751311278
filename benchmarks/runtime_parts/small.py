"""Small fully connected and recurrent networks of snnTorch at batch 1, as its tutorials build them.

    fully connected   784 - 1000 - 10, Leaky, T = 25, a still image (snnTorch's tutorial 5)
    recurrent         12 - 40 (RLeaky) - 7 (Leaky), T = 256, events (the shape of Braille reading)

Contenders take turns in one run: snnTorch eager, the same with a compiled step, onnxruntime of the whole
loop, the runtime with every kind of kernels. Weights are random; the runtime is compared bit for bit with the
simulation before.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.runtime import load
from ptq4snn.runtime.measure import interleave
from runtime_parts.machine import VARIABLE, levels
from runtime_parts.timing import summary

BASE = "snntorch"
SHAPES = ("fully connected", "recurrent")


class FullyConnected(nn.Module):
    """[B, 784] -> spike counts [B, 10] of 25 steps."""

    def __init__(self) -> None:
        super().__init__()
        import snntorch as snn

        self.fc1, self.lif1 = nn.Linear(784, 1000), snn.Leaky(beta=0.95)
        self.fc2, self.lif2 = nn.Linear(1000, 10), snn.Leaky(beta=0.95)

    def step(self, x: Tensor, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, one = self.lif1(self.fc1(x), one)
        s, two = self.lif2(self.fc2(s), two)
        return s, one, two

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.lif1.reset_mem(), self.lif2.reset_mem()
        out = []
        for _ in range(25):
            s, one, two = self.step(x, one, two)
            out.append(s)
        return torch.stack(out).sum(0)


class Recurrent(nn.Module):
    """[B, 256, 12] -> spike counts [B, 7]."""

    def __init__(self) -> None:
        super().__init__()
        import snntorch as snn

        self.fc1, self.lif1 = nn.Linear(12, 40), snn.RLeaky(beta=0.9, linear_features=40)
        self.fc2, self.lif2 = nn.Linear(40, 7), snn.Leaky(beta=0.9)

    def step(self, x: Tensor, s1: Tensor, one: Tensor, two: Tensor) -> tuple[Tensor, ...]:
        s1, one = self.lif1(self.fc1(x), s1, one)
        s, two = self.lif2(self.fc2(s1), two)
        return s, s1, one, two

    def forward(self, x: Tensor) -> Tensor:
        (s1, one), two = self.lif1.reset_mem(), self.lif2.reset_mem()
        out = []
        for t in range(256):
            s, s1, one, two = self.step(x[:, t], s1, one, two)
            out.append(s)
        return torch.stack(out).sum(0)


def network(shape: str) -> tuple[nn.Module, Tensor]:
    """The network in evaluation mode and 33 samples."""
    torch.manual_seed(0)  # snnTorch draws its recurrent weights from the global generator
    g = torch.Generator().manual_seed(0)
    if shape == "fully connected":
        return FullyConnected().eval(), torch.rand(33, 784, generator=g)
    net = Recurrent().eval()
    with torch.no_grad():
        net.fc1.weight.mul_(6)
    return net, (torch.rand(33, 256, 12, generator=g) < 0.2).float()


def contenders(net: nn.Module, x: Tensor, bundle: Path) -> dict[str, Callable[[], Any]]:
    def run(model: Callable[[Tensor], Tensor]) -> Any:
        with torch.no_grad():
            return model(x)

    runs: dict[str, Callable[[], Any]] = {BASE: partial(run, net)}
    program: Any = copy.deepcopy(net)
    program.step = torch.compile(program.step, dynamic=False)  # all of 256 steps would take minutes
    run(program)
    runs["compiled"] = partial(run, program)
    if VARIABLE not in os.environ and all(importlib.util.find_spec(p) for p in ("onnx", "onnxruntime")):
        runs["onnx float"] = onnx_run(net, x)
    for level in levels():
        runs[f"runtime {level}"] = partial(load(bundle, kernels=level), x.numpy())
    return runs


def onnx_run(net: nn.Module, x: Tensor) -> Callable[[], Any]:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = str(Path(folder) / "net.onnx")
        torch.onnx.export(net, (x,), path, dynamo=False, opset_version=17, input_names=["x"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(Path(path).read_bytes(), options)
    return partial(session.run, None, {"x": x.numpy()})


def small(shape: str, folder: Path, rounds: int) -> dict[str, Any]:
    """All contenders at batch 1, and what an operation of the runtime costs besides its work."""
    net, samples = network(shape)
    place = folder / f"small-{shape.replace(' ', '-')}"
    place.mkdir(parents=True, exist_ok=True)
    bundle = place / "model.ptq"
    quantized = ptq4snn.quantize(net, samples[1:], "fast+w4m4")
    quantized.save(bundle)
    x = samples[:1].contiguous()
    runs = contenders(net, x, bundle)
    with torch.no_grad():
        want = quantized(x).numpy()
    for name, run in runs.items():
        if name.startswith("runtime") and not np.array_equal(run(), want):
            raise RuntimeError(f"{shape}: {name} differs from the simulation")
    times = interleave(runs, rounds)
    return {
        "case": shape,
        "batch": 1,
        "base": BASE,
        "rounds": rounds,
        "rate": {"quantized": firing(load(bundle), x.numpy())},
        "contenders": summary(times, 1, BASE),
    }


def firing(rt: Any, x: Any) -> float:
    spikes = [n["spikes"] for n in rt.trace(x).values()]
    return float(np.mean([(s != 0).mean() for s in spikes]))

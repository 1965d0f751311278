"""The float contenders: the same network as users run it today, and as fast as float32 gets here.

    spikingjelly      neurons of SpikingJelly 0.0.0.0.14, multi-step, eager; the layers are torch there too
    eager             the project's own model, eager
    compiled          BatchNorm folded, stateless neurons, channels last, torch.compile: the strongest
    onnx float/int8   the folded network, unrolled over T, in onnxruntime; int8: convolutions and linears by
                      static quantization (QDQ), calibrated on the samples

SpikingJelly is imported from the folder PTQ4SNN_SPIKINGJELLY_014, onnx and onnxruntime from the environment;
what is missing is left out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ptq4snn.discovery.discover import discover
from ptq4snn.discovery.folding import fold
from ptq4snn.discovery.surgery import copy_model, replace_modules
from ptq4snn.frameworks import NeuronSpec, Shell
from ptq4snn.models.neuron import IF, LIF, PLIF

Run = Callable[[Tensor], Tensor]
FOLDER = "PTQ4SNN_SPIKINGJELLY_014"


class Lean(nn.Module):
    """A neuron without state between calls and without what only training needs."""

    def __init__(self, spec: NeuronSpec) -> None:
        super().__init__()
        self.leak, self.gain, self.theta, self.rho = (
            float(v) for v in (spec.leak, spec.gain, spec.theta, spec.rho)
        )
        self.hard, self.strict = spec.reset == "hard", spec.comparator == ">"

    def forward(self, x: Tensor) -> Tensor:  # [T, B, ...]
        spikes = []
        v: Tensor | None = None
        for i in x.unbind(0):
            h = i if self.gain == 1.0 else self.gain * i
            h = h if v is None else h + self.leak * v
            s = h > self.theta if self.strict else h >= self.theta
            v = torch.where(s, torch.zeros_like(h), h) if self.hard else h - self.rho * s.to(h)
            spikes.append(s.to(x.dtype))
        return torch.stack(spikes)


def lean(model: nn.Module, x: Tensor) -> nn.Module:
    """Folded, with stateless neurons."""
    found = discover(model, x[:2])
    folded = fold(model, found)
    new: dict[str, nn.Module] = {}
    for name, spec in folded.specs.items():
        if isinstance(folded.model.get_submodule(name), Shell):
            new[name] = Lean(spec)
    replace_modules(folded.model, new)
    return folded.model.eval().requires_grad_(False)


def inference(model: nn.Module) -> Run:
    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            out: Tensor = model(x)
        return out

    return run


def spikingjelly(model: nn.Module) -> Run | None:
    """The model with SpikingJelly's neurons; its layers are torch's own applied to [T * B, ...]."""
    if importlib.util.find_spec("spikingjelly") is None:
        folder = os.environ.get(FOLDER)
        if not folder or not Path(folder).is_dir():
            return None
        sys.path.append(folder)
    from spikingjelly.activation_based import functional, neuron

    net = copy_model(model)
    new: dict[str, nn.Module] = {}
    for name, m in net.named_modules():
        if not isinstance(m, LIF):
            continue
        common = {"v_threshold": m.v_threshold, "v_reset": m.v_reset, "step_mode": "m"}
        if isinstance(m, IF):
            new[name] = neuron.IFNode(**common)
        elif isinstance(m, PLIF):
            new[name] = neuron.ParametricLIFNode(init_tau=m.tau, decay_input=m.decay_input, **common)
            new[name].load_state_dict({"w": m.w})
        else:
            new[name] = neuron.LIFNode(tau=m.tau, decay_input=m.decay_input, **common)
    replace_modules(net, new)
    net.eval()

    def run(x: Tensor) -> Tensor:
        functional.reset_net(net)
        with torch.inference_mode():
            out: Tensor = net(x)
        return out

    return run


def compiled(folded: nn.Module, x: Tensor) -> tuple[Run, float]:
    """torch.compile, and the seconds it took for this batch size.

    Channels last is 1.1 to 1.4 times faster than the default layout; freezing the weights changes nothing.
    """
    last: Any = copy_model(folded)  # torch's types of `to` know no memory format
    program: Any = torch.compile(last.to(memory_format=torch.channels_last), dynamic=False)
    began = time.perf_counter()
    with torch.no_grad():
        program(x)
    seconds = time.perf_counter() - began

    def run(batch: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = program(batch)
        return out

    return run, seconds


def onnx_file(folded: nn.Module, x: Tensor, path: Path) -> None:
    """Unrolled over T, for one batch size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is the older one
        torch.onnx.export(folded, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"])


def onnxruntime_runs(folded: nn.Module, x: Tensor, samples: Tensor) -> dict[str, Run]:
    """Float and int8 in onnxruntime, one thread; `samples` calibrate. Empty where it is not installed."""
    if any(importlib.util.find_spec(p) is None for p in ("onnx", "onnxruntime")):
        return {}
    import onnxruntime
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader:
        def __init__(self) -> None:
            count = len(x)
            whole = samples[: len(samples) // count * count]
            self.batches = iter([{"x": b.numpy()} for b in whole.split(count)])

        def get_next(self) -> Any:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        plain, ready, int8 = (Path(folder) / f"{n}.onnx" for n in ("float", "ready", "int8"))
        onnx_file(folded, x, plain)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready),
            str(int8),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return {
            "onnx float": _session(onnxruntime, plain.read_bytes()),
            "onnx int8": _session(onnxruntime, int8.read_bytes()),
        }


def _session(onnxruntime: Any, content: bytes) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        (out,) = session.run(None, {"x": x.numpy()})
        return torch.from_numpy(np.asarray(out))

    return run

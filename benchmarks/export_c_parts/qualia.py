"""A small network as Qualia writes it in C, beside ours: conv, IF, conv, IF, conv, IF, linear, IF.

    pip install --no-deps --target DIR qualia-codegen-core qualia-codegen-plugin-snn tabulate

and PTQ4SNN_QUALIA=DIR; PTQ4SNN_SPIKINGJELLY_014 names SpikingJelly's folder. Qualia runs in a process of its
own:

    python benchmarks/export_c_parts/qualia.py WEIGHTS.npz OUT.c

Nothing of it is kept here. Its numbers are int8 with powers of two as scales, its sums have its default of 16
bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CLASSES", "LAYERS", "SIDE", "STEPS", "qualia_source"]

SIDE, STEPS, CLASSES = 28, 4, 10
LAYERS = ((1, 16, 1), (16, 32, 2), (32, 32, 2))  # inputs, outputs, stride of 3x3 convolutions
FOLDERS = ("PTQ4SNN_QUALIA", "PTQ4SNN_SPIKINGJELLY_014")


def qualia_source(weights: dict[str, Any], folder: Path) -> str | None:
    """One file of C; None where Qualia is not there."""
    places = [os.environ.get(v, "") for v in FOLDERS]
    if not all(place and Path(place).is_dir() for place in places):
        return None
    given, out = folder / "weights.npz", folder / "qualia.c"
    np.savez(given, **weights)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, __file__, str(given), str(out)], env=env, check=True, capture_output=True)
    return out.read_text(encoding="utf-8")


def _network(weights: dict[str, Any]) -> Any:
    import torch
    from spikingjelly.activation_based import neuron
    from torch import nn

    class Net(nn.Sequential):
        input_shape = (1, SIDE, SIDE, 1)  # time, rows, columns, channels
        is_snn = True

    parts: dict[str, Any] = {}
    for i, (cin, cout, stride) in enumerate(LAYERS):
        parts[f"conv{i}"] = nn.Conv2d(cin, cout, 3, stride, 1)
        parts[f"if{i}"] = neuron.IFNode(v_reset=None)
    parts |= {"flatten": nn.Flatten(), "fc": nn.Linear(weights["fc.weight"].shape[1], CLASSES)}
    parts["last"] = neuron.IFNode(v_reset=None)
    from collections import OrderedDict

    net = Net(OrderedDict(parts)).eval()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    return net


def _write(given: str, out: str) -> None:
    from qualia_codegen_core.graph import Quantization
    from qualia_codegen_core.graph.RoundMode import RoundMode
    from qualia_codegen_plugin_snn.Converter import Converter
    from qualia_codegen_plugin_snn.graph.TorchModelGraph import TorchModelGraph

    with np.load(given) as kept:
        weights = {k: kept[k] for k in kept.files}
    graph = TorchModelGraph(_network(weights)).convert()
    for node in graph.nodes:
        name = node.layer.name
        largest = max(
            [float(np.abs(v).max()) for k, v in weights.items() if k.split(".")[0] == name] or [1.0]
        )
        fires = name.startswith(("if", "last", "flatten"))
        node.q = Quantization(
            number_type=int, width=8, long_width=16, weights_width=8, bias_width=8, output_width=8,
            weights_scale_factor=int(np.floor(np.log2(127 / largest))) if not fires else 5,
            bias_scale_factor=int(np.floor(np.log2(127 / largest))), output_scale_factor=0 if fires else 5,
            weights_round_mode=RoundMode.FLOOR, output_round_mode=RoundMode.FLOOR,
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        text = Converter(output_path=Path(folder), timestep_mode="iterate").convert_model(graph)
    if not isinstance(text, str):
        raise SystemExit("Qualia wrote nothing")
    Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(*sys.argv[1:])

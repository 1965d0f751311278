"""What is measured of one large network, each stage in a process of its own (large.py starts them).

    python benchmarks/large_stages.py STAGE NETWORK FOLDER

The last line it prints is the stage's figures as JSON. Times are processor time of one thread. Memory is what
the parameters take, and the growth of the resident peak once network and samples are there.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ptq_cost_networks import photographs
from runtime_parts.memory import settle, status
from runtime_parts.networks import firing_rates, tuned
from torch import Tensor, nn

import ptq4snn
from ptq4snn.lowering import lower
from ptq4snn.models.zoo import MODELS
from ptq4snn.runtime import load

__all__ = ["NETWORKS", "RECIPE", "STAGES", "Network"]

RATE = 0.15  # that the float network is tuned to fire at
MICRO_BATCH = 2
ROUNDS = 5
# without what other benchmarks measure: neither biases nor states are tuned
RECIPE = "nearest+uniform+squared_error+w4m4"
OPTIONS = {"holdout": 2, "sensitivity_batches": 1, "sequential": False, "zero_point": "none"}


@dataclass(frozen=True)
class Network:
    """A built-in model at an image size, and the same at the size of CIFAR's images, or nearly so."""

    model: str
    size: int
    samples: int
    small: str | None = None


NETWORKS = {
    "sew-resnet18, 32": Network("sew-resnet18-cifar10", 32, 8),
    "sdt-2-256, 32": Network("sdt-2-256-cifar10", 32, 8),
    "fpn-15m, 64": Network("metaspikeformer-fpn-15m-voc2012", 64, 4),
    "sew-resnet18, 224": Network("sew-resnet18-imagenet", 224, 4, "sew-resnet18, 32"),
    "sdt-8-384, 224": Network("sdt-8-384-imagenet", 224, 4, "sdt-2-256, 32"),
    "fpn-15m, 512": Network("metaspikeformer-fpn-15m-voc2012", 512, 2, "fpn-15m, 64"),
    "sdt-8-768, 224": Network("sdt-8-768-imagenet", 224, 2, "sdt-2-256, 32"),
}


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def inference(model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for batch in x.split(MICRO_BATCH):
            model(batch)


def stored(folder: Path) -> tuple[nn.Module, Tensor]:
    found: tuple[nn.Module, Tensor] = torch.load(folder / "model.pt", weights_only=False)  # made by `make`
    return found


def make(network: Network, folder: Path) -> dict[str, Any]:
    """The network with weights that fire, and its samples, into the folder."""
    x = photographs(network.samples, network.size)
    torch.save((tuned(MODELS[network.model].make(), RATE, x=x[:1]), x), folder / "model.pt")
    return {}


def floating(network: Network, folder: Path) -> dict[str, Any]:
    """Seconds of one image, and memory at the micro-batch of quantization."""
    model, x = stored(folder)
    inference(model, x[:1])
    times = [seconds(lambda: inference(model, x[:1])) for _ in range(3)]
    before = settle()
    inference(model, x[:MICRO_BATCH])
    growth, own = status("VmHWM") - before, 4 * sum(p.numel() for p in model.parameters())
    return {"float_seconds": statistics.median(times), "float_bytes": growth + own}


def quantizing(network: Network, folder: Path) -> dict[str, Any]:
    """Seconds and memory of quantization, and the bundle's size."""
    model, x = stored(folder)
    inference(model, x[:MICRO_BATCH])
    before, found = settle(), []
    options: dict[str, Any] = {"calibration": len(x), "micro_batch": MICRO_BATCH, **OPTIONS}
    taken = seconds(lambda: found.append(ptq4snn.quantize(model, x, RECIPE, progress=False, **options)))
    own = 4 * sum(p.numel() for p in model.parameters())
    peak = status("VmHWM") - before + own
    found[0].save(folder / "model.ptq")
    size = (folder / "model.ptq").stat().st_size
    return {
        "samples": len(x), "quantize_seconds": taken, "quantize_bytes": peak, "bundle_bytes": size,
        "not_lowered": found[0].not_lowered,
    }  # fmt: skip


def lowering(network: Network, folder: Path) -> dict[str, Any]:
    """Seconds of lowering, and how often the quantized neurons fire."""
    model, x = stored(folder)
    q = ptq4snn.load(folder / "model.ptq", model)
    rates = torch.stack(list(firing_rates(q, x[:1]).values())).mean()
    inference(model, x[:1])
    lower(q, x)  # imports
    times = [seconds(lambda: inference(model, x[:1])), seconds(lambda: lower(q, x))]
    times.append(seconds(lambda: inference(model, x[:1])))
    return {"lowering_passes": times[1] / ((times[0] + times[2]) / 2), "firing": float(rates)}


def running(network: Network, folder: Path) -> dict[str, Any]:
    """Loading and running, the float network and the runtime taking turns."""
    model, x = stored(folder)
    image, bundle = x[:1], folder / "model.ptq"
    load(bundle)  # imports
    rt = load(bundle)
    rt(image.numpy())
    inference(model, image)
    loads, floats, calls = [], [], []
    for _ in range(ROUNDS):
        floats.append(seconds(lambda: inference(model, image)))
        calls.append(seconds(lambda: rt(image.numpy())))
        loads.append(seconds(lambda: load(bundle)))
    q = ptq4snn.load(bundle, model)
    with torch.no_grad():
        same = torch.equal(torch.from_numpy(rt(image.numpy())), q(image))
    used = rt.statistics()
    weights = sum(p.weight.size * (0.5 if p.bits <= 4 else 1) for p in rt.model.projections.values())
    ratios = [a / b for a, b in zip(floats, calls, strict=True)]
    return {
        "load_passes": statistics.median(a / b for a, b in zip(loads, floats, strict=True)),
        "runtime_seconds": statistics.median(calls), "over_float": statistics.median(ratios),
        "over_float_range": [min(ratios), max(ratios)], "same_bits": same, "kernels": used.kernels,
        "weights_bytes": int(weights), "tables_bytes": used.weights_bytes - int(weights),
        "values_bytes": used.arena_bytes, "state_bytes": used.state_bytes,
    }  # fmt: skip


STAGES: dict[str, Callable[[Network, Path], dict[str, Any]]] = {
    "make": make, "float": floating, "quantize": quantizing, "lower": lowering, "run": running,
}  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(STAGES[sys.argv[1]](NETWORKS[sys.argv[2]], Path(sys.argv[3]))))

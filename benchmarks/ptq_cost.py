"""What quantization costs, as a ratio to one float pass over the same samples, measured in one run.

    python benchmarks/ptq_cost.py [--samples 1024] [--rounds 3]

Prints the paper's pipeline on nearest weights without the (beta, P) grid (goal: at most 4.5 passes) and with
the grid (at most 7), the library's default, and the peak memory of the process for one and four times the
samples, which must not grow with them where nothing but nearest rounding is asked for.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ptq4snn.api import quantize
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.models.zoo import load_default

MICRO_BATCH = 16
PAPER = "paper+nearest+w4m4"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def float_pass(model: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for batch in x.split(MICRO_BATCH):
            model(batch)


def ratios(samples: int, rounds: int) -> dict[str, float]:
    """Medians of interleaved rounds: a float pass before and after each way to quantize."""
    model, x = load_default(), normalize(default_sample()[0])[:samples]
    float_pass(model, x)  # warm up
    point = {"beta": 0.8, "percentile": 98.0}
    ways: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("without grid", PAPER, point),
        ("with grid", PAPER, {}),
        ("default", "w4m4", {}),
    )
    found: dict[str, list[float]] = {name: [] for name, _, _ in ways}
    for _ in range(rounds):
        for name, recipe, changes in ways:
            before = seconds(lambda: float_pass(model, x))
            work = seconds(partial(quantize, model, x, recipe, **changes))
            after = seconds(lambda: float_pass(model, x))
            found[name].append(2 * work / (before + after))
    return {name: statistics.median(values) for name, values in found.items()}


def peak_memory(samples: int) -> int:
    """Peak resident bytes of a process that quantizes with a stream of `samples` samples."""
    out = subprocess.run(
        [sys.executable, __file__, "--memory-of", str(samples)], capture_output=True, text=True, check=True
    )
    return int(out.stdout)


def quantize_stream(samples: int) -> None:
    images = default_sample()[0]

    def stream() -> Iterator[Tensor]:
        for i in range(0, samples, 64):
            yield normalize(images[[j % len(images) for j in range(i, min(i + 64, samples))]])

    quantize(load_default(), stream(), PAPER, calibration=samples, beta=0.8, percentile=98.0)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    p.add_argument("--samples", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    if a.memory_of is not None:
        quantize_stream(a.memory_of)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    result = {"samples": a.samples, **ratios(a.samples, a.rounds)}
    sizes = (a.samples, 4 * a.samples)
    result["peak bytes"] = {str(n): peak_memory(n) for n in sizes}
    if a.json:
        print(json.dumps(result, indent=1))
        return
    print(f"samples                          {a.samples}")
    print(f"pipeline without grid            {result['without grid']:.2f} float passes (goal 4.5)")
    print(f"pipeline with its grid           {result['with grid']:.2f} float passes (goal 7)")
    print(f"the library's default            {result['default']:.2f} float passes")
    for n in sizes:
        print(f"peak memory with {n:5d} samples   {result['peak bytes'][str(n)] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()

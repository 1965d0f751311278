"""What evaluation and the search of (beta, P) gain from the runtime's kernels, with identical results.

    python benchmarks/runtime_use.py

On the embedded default and its embedded images: `evaluate` on 2,000 test images, and `quantize` by
`paper+nearest` with its grid of 24 points, each with the kernels and with the simulation in turn. The figures
go to benchmarks/runtime_use.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

import torch

import ptq4snn
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.data.source import Batching, open_data
from ptq4snn.experiments.bench import today
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.modules import running
from ptq4snn.runtime.native import available

RESULTS = Path(__file__).with_suffix(".json")
GRID_SAMPLES = 512


def timed(work: Any, kernels: bool) -> tuple[float, Any]:
    running._made.clear()
    found = available() if kernels else ()
    with mock.patch.object(running, "available", lambda: found):
        begin = perf_counter()
        result = work()
        return perf_counter() - begin, result


def compare(name: str, work: Any, rounds: int) -> dict[str, Any]:
    """Seconds of both ways, taking turns; they must give the same."""
    times: dict[bool, list[float]] = {True: [], False: []}
    results = []
    for _ in range(rounds):
        for kernels in (True, False):
            seconds, result = timed(work, kernels)
            times[kernels].append(seconds)
            results.append(result)
    if any(r != results[0] for r in results):
        raise SystemExit(f"{name}: the kernels give another result")
    runtime, simulation = median(times[True]), median(times[False])
    ratio = simulation / runtime
    print(f"{name}: {simulation:.1f} s simulated, {runtime:.1f} s with the kernels, {ratio:.2f}x")
    return {"simulation": simulation, "runtime": runtime, "ratio": ratio}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    torch.set_num_threads(1)
    entry = TRAINED["default"]
    test = list(open_data("default", "test", Batching(100)))
    samples = normalize(default_sample()[0])[:GRID_SAMPLES]
    q = ptq4snn.quantize(entry.load(), samples, "fast")

    def evaluate() -> Any:
        found = ptq4snn.evaluate(q, test)
        return {k: v for k, v in found.items() if k != "throughput"}

    def quantize() -> Any:
        return ptq4snn.quantize(entry.load(), samples, "paper+nearest").plan

    results = {
        "date": today(),
        "evaluate": compare("evaluate, 2,000 images", evaluate, args.rounds),
        "quantize": compare("quantize with the grid of (beta, P)", quantize, args.rounds),
    }
    write_whole(RESULTS, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

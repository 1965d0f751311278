"""What quantization costs, in float passes over the same samples, measured in one run.

    python benchmarks/ptq_cost.py [--network NAME ...] [--recipe NAME ...] [--rounds 1] [--memory] [--write]

A float pass stands before and after each way to quantize; a cost is the processor time of one thread over the
mean of both, the median of the rounds. What Python imports on first use is imported before. Results are kept
in benchmarks/ptq_cost.json, with CPU and date, and the table of docs/results.md is written from it (--write:
only that). --memory adds the peak of a process for one and four times 1,024 samples.
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
from datetime import date
from pathlib import Path
from typing import Any

import torch
from ptq_cost_networks import NETWORKS
from torch import Tensor

from ptq4snn.api import quantize
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.files import write_whole
from ptq4snn.models.zoo import load_default
from ptq4snn.runtime.measure import processor

MICRO_BATCH = 16
RECIPES = {"fast": "fast+w4m4", "default": "w4m4", "paper, nearest": "paper+nearest+w4m4",
           "paper, GPTQ": "paper+gptq+w4m4"}  # fmt: skip
GOALS = {"fast": 4, "default": 8, "paper, nearest": 7, "paper, GPTQ": 7}
RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- quantization cost -->", "<!-- end of quantization cost -->"
MEMORY_SAMPLES = 1024


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def float_pass(model: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for batch in x.split(MICRO_BATCH):
            model(batch)


def measure(name: str, recipe: str, rounds: int, samples: int | None) -> dict[str, Any]:
    """Passes that one recipe costs on one network."""
    network = NETWORKS[name]
    model, x = network.make(samples or network.samples)
    float_pass(model, x)  # warm up
    costs, passes = [], []
    for _ in range(rounds):
        before = seconds(lambda: float_pass(model, x))
        work = seconds(lambda: quantize(model, x, RECIPES[recipe], progress=False))
        after = seconds(lambda: float_pass(model, x))
        passes.append((before + after) / 2)
        costs.append(work / passes[-1])
    return {
        "passes": statistics.median(costs), "float_seconds": statistics.median(passes), "samples": len(x),
        "rounds": rounds, "processor": processor(), "date": date.today().isoformat(),
    }  # fmt: skip


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

    recipe = RECIPES["paper, nearest"]
    quantize(load_default(), stream(), recipe, calibration=samples, beta=0.8, percentile=98.0)


def table(results: dict[str, Any]) -> str:
    head = ["network", "samples", *(f"{name} (goal {GOALS[name]})" for name in RECIPES), "a float pass"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, found in results["networks"].items():
        any_row = next(iter(found.values()))
        cells = [f"{found[r]['passes']:.1f}" if r in found else "" for r in RECIPES]
        seconds_of = f"{any_row['float_seconds']:.2f} s"
        row = [f"`{name}`, {NETWORKS[name].about}", str(any_row["samples"]), *cells, seconds_of]
        lines.append("| " + " | ".join(row) + " |")
    rows = [r for found in results["networks"].values() for r in found.values()]
    where = sorted({f"{r['processor']}, {r['date']}" for r in rows})
    lines += ["", f"One thread of {'; '.join(where)}."]
    if peaks := results.get("peak bytes"):
        sizes = ", ".join(f"{b / 2**20:.0f} MiB for {int(n):,} samples" for n, b in peaks.items())
        lines[-1] += f" Peak memory of the paper's states on nearest weights: {sizes}."
    return "\n".join(lines)


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    text = PAGE.read_text("utf-8")
    return text.split(BEGIN)[0] + f"{BEGIN}\n{table(results)}\n{END}" + text.split(END)[1]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--network", action="append", choices=list(NETWORKS))
    p.add_argument("--recipe", action="append", choices=list(RECIPES))
    p.add_argument("--samples", type=int, help="instead of each network's own number")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--memory", action="store_true")
    p.add_argument("--write", action="store_true", help="only write the table anew")
    p.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> None:
    args = arguments()
    if args.memory_of is not None:
        quantize_stream(args.memory_of)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    torch.set_num_threads(1)
    if not args.write:
        model, x = NETWORKS["default"].make(4)
        quantize(model, x, RECIPES["fast"], progress=False)  # imports
        for name in args.network or NETWORKS:
            for recipe in args.recipe or RECIPES:
                row = measure(name, recipe, args.rounds, args.samples)
                print(
                    f"{name:24s} {recipe:16s} {row['passes']:5.1f} passes (goal {GOALS[recipe]})", flush=True
                )
                keep("networks", {name: {recipe: row}})
        if args.memory:
            keep("peak bytes", {str(n): peak_memory(n) for n in (MEMORY_SAMPLES, 4 * MEMORY_SAMPLES)})
    write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))


def keep(part: str, found: dict[str, Any]) -> None:
    """Add to the stored results, as they are now."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    known = results.setdefault(part, {})
    for name, value in found.items():
        known[name] = {**known.get(name, {}), **value} if isinstance(value, dict) else value
    write_whole(RESULTS, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

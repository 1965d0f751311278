"""The runtime against the simulation on whole test sets: every spike, every last state, every logit.

    python benchmarks/runtime_exactness.py --data cifar10:DIR --data nmnist:FILE --data camvid:FILE

One `--data` for each data set; CIFAR10-DVS-sim is made from CIFAR-10. Every trained model is quantized (W4,
mixed 2/4/8-bit states) and saved; its bundle runs beside the simulation. With the best kernels of the machine
spikes and states of all neurons are compared, and the logits of whole sequences; with every other kernel,
with two threads and step by step, the logits; the first difference ends the run. The counts go to
benchmarks/runtime_exactness.json and to the table in docs/runtime.md (--write does only that).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ptq4snn
from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.experiments.bench import today
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.progress import for_terminal
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.native import available

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "runtime.md"
BEGIN, END = "<!-- exactness -->", "<!-- end of exactness -->"
SIMULATED = {"cifar10-dvs-sim": "cifar10"}  # made from the images of
RECIPE: dict[str, Any] = {"beta": 0.6, "percentile": 98, "rounding": "nearest"}  # of the preset `paper`
SLOW = 64  # samples that the kernels in NumPy see


def simulate(q: ptq4snn.QuantizedModel, x: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Spikes [T, B, ...] and last states [B, ...] of every neuron, and the logits."""
    spikes: dict[str, list[Any]] = {n: [] for n in q.plan.neurons}
    states: dict[str, Any] = {}

    def keep(name: str) -> Any:
        def probe(_x: Any, _h: Any, s: torch.Tensor, v: torch.Tensor, _t: int) -> None:
            spikes[name].append(s.numpy().astype(np.int8))
            states[name] = v.numpy()

        return probe

    for name in spikes:
        q.core(name).probe = keep(name)
    q.reset_state()
    with torch.no_grad():
        logits = q(x).numpy()
    for name in spikes:
        q.core(name).probe = None
    return {n: np.stack(s) for n, s in spikes.items()}, states, logits


def stream(rt: Runtime, x: Any) -> Any:
    """Logits after the last of single steps."""
    axis, rt_input = rt.model.program.input.time_axis, x
    steps = rt.model.program.steps if axis is None else x.shape[axis]
    rt.reset()
    for t in range(steps):
        out = rt.step(rt_input if axis is None else np.take(rt_input, t, axis))
    return out


def same(what: str, found: Any, wanted: Any) -> int:
    if found.shape != wanted.shape or not np.array_equal(found, wanted):
        raise SystemExit(f"{what}: the runtime differs from the simulation")
    return int(np.size(found))


def compare(name: str, q: ptq4snn.QuantizedModel, path: Path, batches: Any) -> dict[str, Any]:
    levels = [level for level in available() if level]
    runtimes = {level: ptq4snn.runtime.load(path, level) for level in levels}
    best, slow = runtimes[levels[-1]], ptq4snn.runtime.load(path, "numpy")
    count = {"samples": 0, "spikes": 0, "states": 0, "logits": 0}
    for x, _ in for_terminal().track(batches, len(batches), name):
        spikes, states, logits = simulate(q, x)
        array = x.numpy()
        for neuron, seen in best.trace(array).items():
            count["spikes"] += same(f"{name} {neuron} spikes", seen["spikes"], spikes[neuron])
            if "state" in seen:
                count["states"] += same(f"{name} {neuron} states", seen["state"], states[neuron])
        for level, rt in runtimes.items():
            count["logits"] += same(f"{name} {level}", rt(array), logits)
        same(f"{name} two threads", best(array, threads=2), logits)
        same(f"{name} step by step", stream(best, array), logits)
        if count["samples"] < SLOW:
            same(f"{name} NumPy", slow(array), logits)
        count["samples"] += len(array)
    return {"kernels": levels, "bytes": path.stat().st_size, **count, "date": today()}


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    head = "| model | test samples | spikes | states | logits | differences |"
    lines = [head, "|---|---:|---:|---:|---:|---:|"]
    for name in TRAINED:
        if name in results:
            r = results[name]
            counts = " | ".join(f"{r[k]:,}" for k in ("samples", "spikes", "states", "logits"))
            lines.append(f"| `{name}` | {counts} | 0 |")
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    table = "\n".join(lines)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", choices=list(TRAINED), metavar="NAME")
    p.add_argument("--limit", type=int, help="only the first batches of 50")
    p.add_argument("--write", action="store_true", help="only write the table")
    args = p.parse_args()
    if args.write:
        write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))
        return
    given = {spec.split(":")[0]: spec.split(":", 1)[1] for spec in args.data}
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for name, entry in TRAINED.items():
        source = SIMULATED.get(entry.data, entry.data)
        if source not in given or (args.model and name not in args.model):
            continue
        data = f"{entry.data}:{given[source]}"
        train = open_samples(data, "calibration", entry.preprocessing, entry.data)
        test = open_samples(data, "test", entry.preprocessing, entry.data)
        few = torch.cat([x for x, _ in islice(SampleBatches(train, 16), 8)])
        q = ptq4snn.quantize(entry.load(), few, "paper", **RECIPE)
        batches = list(islice(SampleBatches(test, 50), args.limit)) if args.limit else SampleBatches(test, 50)
        with tempfile.TemporaryDirectory() as folder:
            q.save(Path(folder) / "model.ptq")
            found = compare(name, q, Path(folder) / "model.ptq", batches)
        print(f"{name}: the same bits: {found}", flush=True)
        if not args.limit:
            results[name] = found
            write_whole(RESULTS, json.dumps(results, indent=1))
            write_whole(PAGE, written(results))


if __name__ == "__main__":
    main()

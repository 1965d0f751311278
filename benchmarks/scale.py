"""What two processes gain over one, stage by stage, and what they tell each other: tables of docs/scale.md.

    python benchmarks/scale.py [--rounds 3] [--samples 512]

Each process has one thread. Runs of one and of two processes take turns; efficiency is t1 / (2 t2), of
medians.
The embedded default is observed, rounded by GPTQ and by BRECQ (a few iterations), and evaluated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptq4snn.experiments.bench import today
from ptq4snn.files import write_whole

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
STAGES = ("observe", "GPTQ", "BRECQ", "evaluate")
ITERATIONS = 60


def staged(samples: int) -> dict[str, Any]:
    """Seconds of every stage in this process of a team, its memory, and the bytes it told."""
    import torch

    from ptq4snn.bridge.lattice import Lattice
    from ptq4snn.data.cifar import normalize
    from ptq4snn.data.sample import default_sample
    from ptq4snn.evaluation.metrics import evaluate
    from ptq4snn.models.zoo import load_default
    from ptq4snn.prepare import Where, prepare
    from ptq4snn.recipe import Recipe
    from ptq4snn.rounding.stage import round_weights
    from ptq4snn.team import from_environment

    torch.set_num_threads(1)
    train, test, labels = (torch.as_tensor(a) for a in default_sample()[:3])
    model, x = load_default(), normalize(train)[:samples]
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = work()
        seconds[stage] = time.perf_counter() - began
        return found

    with from_environment() as team:
        gptq = Recipe.parse("w4m4")
        prepared = timed("observe", lambda: prepare(model, x, gptq, where=Where(team=team)))
        lattice = Lattice.of(prepared.folded, prepared.seen, gptq)
        timed("GPTQ", lambda: round_weights(prepared, lattice, gptq))
        brecq = Recipe.parse("brecq+w4m4").replace(iterations=ITERATIONS)
        timed("BRECQ", lambda: round_weights(prepared, lattice, brecq))
        batches = [
            (normalize(i), y) for i, y in zip(test[:samples].split(32), labels.split(32), strict=False)
        ]
        timed("evaluate", lambda: evaluate(model, batches, team=team))
        memory = team.all(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "memory")
        return {"seconds": seconds, "bytes": dict(team.sent), "memory": memory}


def run(processes: int, samples: int) -> dict[str, Any]:
    """`staged` in so many processes, as the first of them tells."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    out = subprocess.run(
        [sys.executable, *launch, __file__, "--staged", str(samples)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found: dict[str, Any] = json.loads(out.stdout)
    return found


def measure(samples: int, rounds: int) -> dict[str, Any]:
    made: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, runs in made.items():
            runs.append(run(processes, samples))
            print(processes, runs[-1]["seconds"], flush=True)
    stages = {}
    for stage in STAGES:
        one, two = (statistics.median(r["seconds"][stage] for r in made[n]) for n in (1, 2))
        stages[stage] = {"one": one, "two": two, "efficiency": one / (2 * two)}
    return {
        "date": today(), "processor": processor(), "samples": samples, "rounds": rounds,
        "iterations": ITERATIONS, "stages": stages, "bytes": made[2][-1]["bytes"],
        "memory": {str(n): max(made[n][-1]["memory"]) for n in made},
    }  # fmt: skip


def processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()


def table(r: dict[str, Any]) -> str:
    lines = ["| stage | one process | two | efficiency |", "|---|---:|---:|---:|"]
    for stage, s in r["stages"].items():
        lines.append(f"| {stage} | {s['one']:.1f} s | {s['two']:.1f} s | {100 * s['efficiency']:.0f} % |")
    mib = {n: b / 2**20 for n, b in r["memory"].items()}
    return "\n".join(lines) + (
        f"\n\n{r['processor']}, {r['date']}, {r['samples']} samples, {r['rounds']} rounds, {r['iterations']} "
        f"iterations a block of BRECQ.\nMemory of a process: {mib['1']:.0f} MiB alone, {mib['2']:.0f} MiB "
        "of two."
    )


def told(r: dict[str, Any]) -> str:
    lines = ["| what | KiB sent by a process |", "|---|---:|"]
    lines += [f"| {what} | {n / 1024:,.1f} |" for what, n in sorted(r["bytes"].items()) if what != "memory"]
    return "\n".join(lines)


def written(results: dict[str, Any]) -> str:
    text = PAGE.read_text("utf-8")
    for name, shown in (("efficiency", table(results)), ("told", told(results))):
        begin, end = BEGIN.format(name), END.format(name)
        text = text.split(begin)[0] + f"{begin}\n{shown}\n{end}" + text.split(end)[1]
    return text


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--samples", type=int, default=512)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--staged", type=int, help=argparse.SUPPRESS)
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    if a.staged is not None:
        found = staged(a.staged)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(found), flush=True)
        os._exit(0)  # as `python -m ptq4snn` ends: threads that torch leaves behind may abort an ordinary end
    if not a.write:
        write_whole(RESULTS, json.dumps(measure(a.samples, a.rounds), indent=1) + "\n")
    write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))


if __name__ == "__main__":
    main()

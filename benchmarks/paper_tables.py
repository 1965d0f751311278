"""The paper's tables and ablations on SEW-ResNet and CIFAR-100, its ablation data, for docs/results.md.

    python benchmarks/paper_tables.py --data cifar100:DIR [--experiment NAME ...] [--iterations 500]

For every experiment this is

    ptq4snn experiment NAME --model sew-resnet10-48-cifar100 --data cifar100:DIR --iterations N --seeds ...

Finished runs are kept in --out and reused. What each printed goes to benchmarks/paper_tables.json, and from
there into the page (--write does only that).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.experiments.bench import Bench, Conditions, today
from ptq4snn.experiments.catalog import find
from ptq4snn.experiments.outcome import run_experiment
from ptq4snn.experiments.paper import RunSetting
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.progress import for_terminal
from ptq4snn.runtime.measure import processor

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- paper's ablations -->", "<!-- end of paper's ablations -->"
MODEL = "sew-resnet10-48-cifar100"
LIMITS = {  # test images; None: all
    "cifar": None, "scale-ablation": None, "mpba-ablation": None, "sweep": 2000, "packed-state": 2000,
}  # fmt: skip


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What the experiment prints."""
    entry, limit = TRAINED[MODEL], LIMITS[name]
    calibration, test = (
        open_samples(args.data, part, entry.preprocessing, entry.data) for part in ("calibration", "test")
    )
    bench = Bench.of(
        entry.load(), SampleBatches(calibration, 16), SampleBatches(test, 50), args.out,
        Conditions(limit, progress=for_terminal()),
    )  # fmt: skip
    seeds = [args.seeds[0]] if LIMITS[name] else args.seeds
    ran = RunSetting(MODEL, entry.data, 4, limit, "iterations")
    outcome = run_experiment(find(name), bench, ran, seeds, {"iterations": args.iterations})
    command = (
        f"ptq4snn experiment {name} --model {MODEL} --data {entry.data}:DIR --iterations {args.iterations}"
    )
    command += f" --seeds {' '.join(map(str, seeds))}" + ("" if limit is None else f" --limit {limit}")
    return {"command": command, "date": today(), "processor": processor(), "lines": outcome.lines}


def shown(results: dict[str, Any]) -> str:
    """Command and table of every experiment, as they are seen in a terminal."""
    parts = []
    for name in LIMITS:
        if name in results:
            table = [line for line in results[name]["lines"][2:] if not line.startswith("no figures")]
            lines = [results[name]["command"], "", *table]
            parts.append("\n".join(f"    {line}".rstrip() for line in lines).rstrip())
    return "\n\n".join(parts)


def written(results: dict[str, Any]) -> str:
    """The page with what the results give."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{shown(results)}\n\n{END}{rest.partition(END)[2]}"


def known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="", metavar="NAME:PATH")
    p.add_argument("--experiment", action="append", choices=tuple(LIMITS), help="only these")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--iterations", type=int, default=500, help="of reconstruction; the paper's are 20,000")
    p.add_argument("--out", default="runs/paper_tables", type=Path)
    p.add_argument("--write", action="store_true", help="only write the page")
    args = p.parse_args()
    if not args.write and not args.data:
        p.error("give --data, or --write")
    for name in [] if args.write else args.experiment or LIMITS:
        write_whole(RESULTS, json.dumps(known() | {name: measure(name, args)}, indent=1) + "\n")
    write_whole(PAGE, written(known()))


if __name__ == "__main__":
    main()

"""Large images and large models: what it takes to quantize them and how they run; the table of docs/scale.md.

    python benchmarks/large.py [--network NAME ...] [--stage NAME ...] [--folder DIR] [--timeout 1800]
        [--again] [--write]

Every stage of a network (large_stages.py) is a process of its own with one thread and an end to its time.
What is done is kept in benchmarks/large.json at once, so a run that was interrupted goes on from there, given
the same folder; --again measures anew, --write only writes the table. Weights are random, tuned until the
float network fires at 15 %; images are smooth noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from large_stages import MICRO_BATCH, NETWORKS, RECIPE, STAGES

from ptq4snn.experiments.bench import today
from ptq4snn.files import write_whole
from ptq4snn.runtime.measure import processor

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- large -->", "<!-- end of large -->"
MIB = 2**20
FILES = {"make": "model.pt", "quantize": "model.ptq"}  # what a stage leaves for the next ones
WITHIN = 1.5  # of the small shape's ratio


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def keep(network: str, stage: str, found: dict[str, Any]) -> None:
    """Add to the stored results, as they are now."""
    all_of = results()
    all_of.setdefault(network, {})[stage] = {**found, "processor": processor(), "date": today()}
    write_whole(RESULTS, json.dumps(all_of, indent=1) + "\n")


def measure(network: str, stage: str, folder: Path, timeout: float) -> dict[str, Any]:
    """The figures of a stage, or why there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, str(Path(__file__).with_name("large_stages.py")), stage, network, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            program, capture_output=True, text=True, check=False, timeout=timeout, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {timeout:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failed": lines[-1] if lines else f"ended with code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(networks: list[str], stages: list[str], root: Path, timeout: float, again: bool) -> None:
    for network in networks:
        folder = root / network.replace(", ", "-")
        for stage in STAGES:
            known = results().get(network, {}).get(stage)
            there = stage not in FILES or (folder / FILES[stage]).exists()
            wanted = again and stage in stages
            if known is not None and "failed" not in known and there and not wanted:
                continue
            found = measure(network, stage, folder, timeout)
            keep(network, stage, found)
            print(f"{network:20s} {stage:9s} {json.dumps(found)}", flush=True)
            if "failed" in found:
                break


def cell(row: dict[str, Any], form: str, *names: str) -> str:
    """One figure, by the names it is made of; nothing where a stage failed or was not run."""
    return form.format(*(row[n] for n in names)) if all(n in row for n in names) else ""


def line(network: str, stages: dict[str, Any], all_of: dict[str, Any]) -> str:
    row = {k: v for found in stages.values() for k, v in found.items()}
    small = all_of.get(NETWORKS[network].small or "", {}).get("run", {}).get("over_float")
    if "quantize_seconds" in row:
        row["passes"] = row["quantize_seconds"] / (row["samples"] * row["float_seconds"])
        row["memory"] = row["quantize_bytes"] / row["float_bytes"]
        row["mib"], row["float_mib"] = row["quantize_bytes"] / MIB, row["float_bytes"] / MIB
        row["bundle"] = row["bundle_bytes"] / MIB
    if "tables_bytes" in row:
        row["tables"] = row["tables_bytes"] / row["weights_bytes"]
        row["values"] = row["values_bytes"] / MIB
        row["against"] = small / row["over_float"] if small else float("nan")
    cells = [
        f"`{network}`",
        percent(row),
        cell(row, "{:.2f} s", "float_seconds"),
        cell(row, "{:.0f}", "passes"),
        cell(row, "{:.0f} of {:.0f} MiB, {:.1f}x", "mib", "float_mib", "memory"),
        cell(row, "{:.1f} MiB", "bundle"),
        cell(row, "{:.1f}", "lowering_passes"),
        cell(row, "{:.1f}", "load_passes"),
        cell(row, "{:.2f}", "tables"),
        cell(row, "{:.1f} MiB", "values"),
        cell(row, "{:.1f}x", "over_float"),
        cell(row, "{:.2f}", "against") if small else "",
    ]
    failed = [f"{stage}: {found['failed']}" for stage, found in stages.items() if "failed" in found]
    return "| " + " | ".join(cells) + " |" + (f" {'; '.join(failed)}" if failed else "")


def percent(row: dict[str, Any]) -> str:
    return f"{100 * row['firing']:.0f} %" if "firing" in row else ""


def table(all_of: dict[str, Any]) -> str:
    head = [
        "network, pixels", "firing", "a float image", "quantize, passes", "its memory over float's", "bundle",
        "lowering, passes", "loading, passes", "tables over weights", "values", "runtime over float",
        f"small shape's over it (goal {WITHIN})",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    known = {name: all_of[name] for name in NETWORKS if name in all_of}
    lines += [line(name, stages, all_of) for name, stages in known.items()]
    where = sorted({f"{s['processor']}, {s['date']}" for stages in known.values() for s in stages.values()})
    same = [s["run"]["same_bits"] for s in known.values() if "same_bits" in s.get("run", {})]
    bits = "gave the bits of the simulation" if all(same) else "did NOT all give the bits of the simulation"
    lines += [
        "",
        f"One thread of {'; '.join(where)}. Recipe `{RECIPE}`, {MICRO_BATCH} samples at a time. "
        "A pass is a float pass of one image (lowering, loading) or of the calibration samples (quantize). "
        f"All {len(same)} {bits}.",
    ]
    return "\n".join(lines)


def written(all_of: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    text = PAGE.read_text("utf-8")
    return text.split(BEGIN)[0] + f"{BEGIN}\n{table(all_of)}\n{END}" + text.split(END)[1]


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--network", action="append", choices=list(NETWORKS))
    p.add_argument("--stage", action="append", choices=list(STAGES), help="that --again is for; all")
    p.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "ptq4snn-large")
    p.add_argument("--timeout", type=float, default=1800.0, help="seconds of a stage")
    p.add_argument("--again", action="store_true", help="measure what is known already, too")
    p.add_argument("--write", action="store_true", help="only write the table anew")
    args = p.parse_args()
    if not args.write:
        run(args.network or list(NETWORKS), args.stage or list(STAGES), args.folder, args.timeout, args.again)
    write_whole(PAGE, written(results()))


if __name__ == "__main__":
    main()

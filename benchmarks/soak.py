"""Soak and load: steps without end, a thousand sessions, threads that share one model. All bits compared.

python benchmarks/soak.py                    a few thousand steps, half a minute
python benchmarks/soak.py --steps 1000000    what docs/reliability.md shows; --write only writes the table
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from soak_parts.crowd import sessions, sharing
from soak_parts.network import make
from soak_parts.streams import streaming

from ptq4snn.files import write_whole

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- soak -->", "<!-- end of soak -->"


def measure(steps: int, count: int, threads: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "net.ptq"
        simulation = make(bundle)
        out: dict[str, Any] = {"sharing": sharing(bundle, threads, max(20, min(500, steps // 100)))}
        out["sessions"] = sessions(bundle, count, 20)
        begin = time.monotonic()
        out["streaming"] = streaming(bundle, simulation, steps).summary()
        out["streaming"]["seconds"] = round(time.monotonic() - begin)
    return out


def table(results: dict[str, Any]) -> str:
    s, many, threads = results["streaming"], results["sessions"], results["sharing"]
    first, last = (s[k] / 2**20 for k in ("resident_first", "resident_last"))
    kernels = ", ".join(s["kernels"][:-1])
    rows = [
        (
            f"{s['steps']:,} steps of two sessions, one moved {s['in_memory']:,} times through memory and "
            f"{s['in_file']:,} times through a file to a runtime of other kernels ({kernels})",
            f"{s['wrong']} differences, states compared at each move; NumPy ran {s['by_numpy']:,} of the "
            f"steps beside, the simulation the first {s['simulated']:,}",
        ),
        (
            f"its memory, after the first quarter, {s['seconds']:,} s in all",
            f"{first:.2f} MiB, at the end {last:.2f} MiB: {s['bytes_a_thousand_steps']:+,.1f} bytes a "
            "thousand steps",
        ),
        (
            f"{many['sessions']:,} sessions in one process, {many['steps_each']} steps each, in random order",
            f"{many['wrong']} differences from NumPy on one batch of all; "
            f"{many['bytes_a_session'] / 2**10:,.0f} KiB a session, weights and tables counted",
        ),
        (
            f"{threads['threads']} threads on one runtime, {threads['calls']:,} calls: whole sequences, own "
            "sessions, a shared one",
            f"{threads['wrong']} differences, {len(threads['errors'])} errors; the state of the shared "
            "session is that of as many steps by one thread",
        ),
    ]
    return "\n".join(["| what | what happened |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    text = PAGE.read_text("utf-8")
    return text.split(BEGIN)[0] + f"{BEGIN}\n{table(results)}\n{END}" + text.split(END)[1]


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--sessions", type=int, default=1000)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument(
        "--store", action="store_true", help="keep the results and write them into docs/reliability.md"
    )
    p.add_argument("--write", action="store_true", help="only write the table anew")
    args = p.parse_args()
    if args.write:
        write_whole(PAGE, written(json.loads(RESULTS.read_text("utf-8"))))
        return
    results = measure(args.steps, args.sessions, args.threads)
    print(json.dumps(results, indent=1))
    if args.store:
        write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
        write_whole(PAGE, written(results))


if __name__ == "__main__":
    main()

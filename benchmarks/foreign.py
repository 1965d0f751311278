"""Trained networks of other frameworks, quantized as they come: the tables of docs/results.md.

    python benchmarks/foreign.py --braille DIR --nmnist-nir FILE.nir --nmnist FILE.npz
    python benchmarks/foreign.py --recorded DIR

--braille: the folder paper/03_rnn of the package nir 1.0.3, with the NIR paper's two recurrent networks
(current and membrane, T = 256) and its Braille letters. --nmnist-nir: the NIR paper's convolutional network
(T = 300), run on the recordings of --nmnist. Couplings on equal weights are compared on them by
benchmarks/methods.py. --recorded: the folder paper/02_cnn of the package nir 1.0.3, where others left the
spikes of the convolutional network's first layer on ten digits. None of it is part of this repository.
Finished runs are kept in --out and reused; the figures go to benchmarks/foreign.json, and the table in
docs/results.md is written from it (--write does only that).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import Case, braille, nmnist_cnn
from torch import Tensor, nn

import ptq4snn
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.compare import compare
from ptq4snn.files import write_whole
from ptq4snn.frameworks import adapter_of
from ptq4snn.progress import for_terminal

RESULTS = Path(__file__).with_suffix(".json")
RECORDED = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"
BASELINE = "W4/M32"
PLATFORMS = ("Norse", "Lava", "nengo", "snnTorch", "spyx", "sinabs", "s2")
METHODS = {
    "W8/M8": "gptq+w8m8",
    "W4/M32": "gptq+w4m32",
    "default W4/M4": "w4m4",
    "default W4/M2": "w4m2",
}
NARROW = {"first_bits": 4, "last_bits": 4, "first_membrane": 4}  # nothing is protected


def cases(args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    """The networks whose files are given, by their titles."""
    given = {"braille": args.braille, "nmnist-cnn": args.nmnist_nir, "nmnist": args.nmnist}
    places = {name: str(place) for name, place in given.items() if place is not None}
    for reset in ("subtract", "zero"):
        found = braille(places, reset)
        if found is not None:
            yield f"Braille, {reset}", found
            yield f"Braille, {reset}, 4 bits everywhere", replace(found, changes=NARROW)
    found = nmnist_cnn(places)
    if found is not None:
        yield "N-MNIST, convolutional", found


def measure(title: str, case: Case, seeds: list[int], out: Path, only: list[str]) -> Any:
    methods = METHODS
    if only:
        methods = {label: spec for label, spec in methods.items() if label in (*only, BASELINE)}
    found = compare(
        case.model,
        case.calibration,
        case.test,
        [f"{label}={spec}" for label, spec in methods.items()],
        seeds,
        folder=out,
        baseline=BASELINE,
        changes=case.changes,
        progress=for_terminal(),
        report=lambda m, seed, r, stored: print(f"{title}: {m.label} {seed}: {r['score']:.2f}", flush=True),
    )
    rows = found.to_dict()["rows"]
    return {
        "samples": found.runs[0]["samples"],
        "date": today(),
        "seeds": seeds,
        "changes": case.changes,
        "rows": rows,
    }


def table(results: dict[str, Any]) -> str:
    """A line a method, a column a network: mean score and spread over the seeds."""
    head = ["", *(f"{name}, {r['samples']} samples" for name, r in results.items())]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label in ("float", *METHODS):
        cells = [label]
        for r in results.values():
            row = next((row for row in r["rows"] if row["method"] == label), None)
            spread = "" if row is None or row["spread"] is None else f" ± {row['spread']:.1f}"
            cells.append("" if row is None else f"{row['score']:.1f}{spread}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recorded(folder: Path) -> dict[str, Any]:
    """Positions [T, B, C, H, W] where the first layer's spikes are not those that a platform recorded."""
    digits = torch.from_numpy(np.load(folder / "cnn_numbers.npy")).float()  # [T, B, 2, 34, 34]
    out: dict[str, Any] = {"positions": 0, "platforms": {}}
    for reset in ("zero", "subtract"):
        model = ptq4snn.from_nir(folder / "cnn_sinabs.nir", reset=reset)
        spikes = first_spikes(model, digits.transpose(0, 1))
        out["positions"] = spikes.numel()
        for name in PLATFORMS:
            theirs = torch.from_numpy(np.load(folder / f"{name}_activity.npy")).float()
            row = out["platforms"].setdefault(name, {"spikes": int(theirs.sum())})
            row[reset] = int((theirs != spikes).sum())
    return out


def first_spikes(model: nn.Module, x: Tensor) -> Tensor:
    """Of the neurons that run first."""
    kept: list[Tensor] = []

    def keep(_m: nn.Module, _a: Any, y: Any) -> None:
        kept.append(y[0] if isinstance(y, tuple) else y)

    handles = [m.register_forward_hook(keep) for m in model.modules() if adapter_of(m) is not None]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return kept[0]


def recorded_table(found: dict[str, Any]) -> str:
    lines = ["| recorded by | spikes | differ, reset to zero | differ, subtracting |", "|---|---|---|---|"]
    for name, r in found["platforms"].items():
        lines.append(f"| {name} | {r['spikes']:,} | {r['zero']:,} | {r['subtract']:,} |")
    return "\n".join(lines)


def written(results: dict[str, Any], spikes: dict[str, Any]) -> str:
    """The page with the tables that the results give."""
    text = PAGE.read_text("utf-8")
    for name, content in (("foreign", table(results)), ("recorded", recorded_table(spikes))):
        begin, end = BEGIN.format(name), END.format(name)
        text = text.split(begin)[0] + f"{begin}\n{content}\n{end}" + text.split(end)[1]
    return text


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--braille", type=Path, metavar="DIR")
    p.add_argument("--nmnist-nir", type=Path, metavar="FILE")
    p.add_argument("--nmnist", type=Path, metavar="FILE")
    p.add_argument("--recorded", type=Path, metavar="DIR")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--out", type=Path, default=Path("runs/foreign"))
    p.add_argument("--only", nargs="+", default=[], metavar="ROW", help="measure only these rows anew")
    p.add_argument("--write", action="store_true", help="only write the table anew")
    args = p.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not args.write:
        for title, case in cases(args):
            found = measure(title, case, args.seeds, args.out, args.only)
            known = {row["method"]: row for row in results.get(title, {"rows": []})["rows"]}
            known |= {row["method"]: {**row, "date": found["date"]} for row in found["rows"]}
            results[title] = {**found, "rows": list(known.values())}
            write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    if args.recorded is not None:
        write_whole(RECORDED, json.dumps(recorded(args.recorded), indent=1) + "\n")
    write_whole(PAGE, written(results, json.loads(RECORDED.read_text())))


if __name__ == "__main__":
    main()

"""Methods against each other on trained networks: the tables of docs/results.md.

    python benchmarks/methods.py --part equal --data cifar10:DIR --data cifar100:DIR --data nmnist:FILE \\
        --data braille:DIR --data nmnist-cnn:FILE.nir --data resnet20:FILE.th

One `--data` for each data set, and for each network of others (benchmarks/networks.py says what they are).
A network whose data is not given is left out. For every network this is

    ptq4snn compare MODEL --data DATA --seeds 0 1 2 --methods METHODS ...

Finished runs are kept in --out (runs/methods) and reused; two processes may share it. The figures go to
benchmarks/methods.json, the tables in docs/results.md and README.md are written anew from it (--write does
only that).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from methods_page import write_pages
from networks import FOREIGN, Case, case
from torch import Tensor

from ptq4snn.discovery.model_digest import model_digest
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.compare import compare
from ptq4snn.files import write_whole
from ptq4snn.models.trained import TRAINED
from ptq4snn.progress import for_terminal

RESULTS = Path(__file__).with_suffix(".json")
ABLATION = {  # the paper's states, then one option after the other; weights by GPTQ
    "squared error (paper's bridge)": "paper+separate+gptq+uniform+w4m{}",
    "with MPBA (paper)": "paper+separate+gptq+w4m{}",
    "replay": "paper+separate+gptq+uniform+replay+w4m{}",
    "replay, dither": "paper+separate+gptq+uniform+replay+dither+w4m{}",
    "replay, benefit, 3-bit": "paper+separate+gptq+benefit+3-bit+replay+w4m{}",
    "replay, sequential": "paper+separate+gptq+uniform+replay+sequential+w4m{}",
    "... zero point": "paper+separate+gptq+uniform+replay+sequential+zero-point+w4m{}",
    "... zero point, dither": "paper+separate+gptq+uniform+replay+sequential+zero-point+dither+w4m{}",
    "... zero point, bias": "paper+separate+gptq+uniform+replay+sequential+zero-point+bias+w4m{}",
    "... zero point, threshold": "paper+separate+gptq+uniform+replay+sequential+zero-point+threshold+w4m{}",
    "... zero point, benefit, 3-bit": "paper+separate+gptq+benefit+3-bit+replay+sequential+zero-point+w4m{}",
}
EQUAL = {  # couplings and allocations on equal weights, rounded alike; only FlowQ has one scale a layer
    "reuse": "paper+{}+reuse+uniform+w4m{}",
    "FlowQ": "paper+{}+flowq+uniform+w4m{}",
    "layer-wise": "paper+{}+layerwise+uniform+w4m{}",
    "bridge": "paper+{}+uniform+w4m{}",
    "bridge + MPBA": "paper+{}+w4m{}",
    "default": "{}+w4m{}",
}
BUDGETS = ("4", "3", "2.5", "2")
NOT_AT = {  # the same width for all has no average between widths; MPBA at 2 bits is that: the bridge
    "2.5": ("reuse", "FlowQ", "layer-wise", "bridge"),
    "2": ("bridge + MPBA",),
}
# weights, and what the rows on them begin with
ON = {"gptq": "", "sbc": "sbc: ", "nearest": "nearest: ", "brecq": "BRECQ: "}
NARROW = {
    "W4/M32": "w4m32", "W4/M2": "w4m2", "W3/M2": "w3m2", "W3/M2, one width": "one-width+w3m2",
    "W3/M2, whole levels": "whole-levels+w3m2", "W2.5/M2": "w2.5m2", "W2/M2": "w2m2",
    "W2/M2, whole levels": "whole-levels+w2m2",
}  # fmt: skip
DISTILLED = {
    "W2/M2, whole levels": "whole-levels+w2m2+distil", "W3/M2, whole levels": "whole-levels+w3m2+distil",
    "W4/M2": "w4m2+distil",
}  # fmt: skip
RECONSTRUCTED = {  # what AdaRound and BRECQ keep as it was, beside roundings without steps; one width
    "nearest": "nearest+one-width+w3m32", "GPTQ": "gptq+one-width+w3m32",
    "AdaRound, potential": "adaround+one-width+w3m32",
    "AdaRound, its own W x": "adaround+current+one-width+w3m32",
    "BRECQ, potential": "brecq+one-width+w3m32",
    "BRECQ, output of the block": "brecq+output+one-width+w3m32",
    "BRECQ, output, Fisher": "brecq+output+fisher+one-width+w3m32",
}  # fmt: skip
OWN = (  # those whose accuracy has room to be lost
    "default", "sew-resnet10-48-cifar100", "sdt-2-128-cifar10", "vgg8-32-cifar10", "vgg4-16-nmnist-slow",
)  # fmt: skip
NETWORKS = (*OWN, "metaspikeformer-32-cifar10", *FOREIGN)
REBUILT = ("vgg8-32-cifar10", "vgg4-16-nmnist-slow")
ABLATED = ("default", "sdt-2-128-cifar10", "vgg4-16-nmnist-slow")


def ablation() -> dict[str, str]:
    rows = {"GPTQ W4/M32": "gptq+w4m32"}
    for bits in (4, 2):
        rows |= {f"{label}, M{bits}": spec.format(bits) for label, spec in ABLATION.items()}
    return rows


def equal(roundings: tuple[str, ...] = ("gptq",)) -> dict[str, str]:
    """Every coupling at every budget on the weights of each rounding."""
    rows = {}
    for rounding in roundings:
        rows[f"{ON[rounding]}W4/M32"] = f"{rounding}+w4m32"
        for bits in BUDGETS:
            kept = {n: spec for n, spec in EQUAL.items() if n not in NOT_AT.get(bits, ())}
            rows |= {f"{ON[rounding]}{n} W4/M{bits}": s.format(rounding, bits) for n, s in kept.items()}
    return rows


PARTS: dict[str, Callable[[], dict[str, str]]] = {
    "equal": equal, "narrow": lambda: NARROW, "ablation": ablation, "distilled": lambda: DISTILLED,
    "reconstruction": lambda: RECONSTRUCTED,
}  # fmt: skip


def measure(
    name: str, case: Case, methods: dict[str, str], args: argparse.Namespace, limit: int | None
) -> Any:
    """The rows of a network."""
    found = compare(
        case.model,
        case.calibration,
        case.test,
        [f"{label}={spec}" for label, spec in methods.items()],
        args.seeds,
        folder=args.out,
        changes={"iterations": args.iterations} | case.changes,
        limit=limit,
        progress=for_terminal(),
        report=lambda m, seed, r, stored: print(f"{name}: {m.label} {seed}: {r['score']:.2f}", flush=True),
    )
    rows = found.to_dict()["rows"]
    each = {m.label: [r["score"] for r in found.of(m)] for m in found.methods}
    return {
        "data": case.data,
        "samples": found.runs[0]["samples"],
        "date": today(),
        "float": model_digest(case.model, first_two(case.calibration)),
        "rows": [r | {"each": each[r["method"]]} for r in rows],
    }


def first_two(calibration: Any) -> Any:
    """Samples that a network is told by."""
    return calibration[:2] if isinstance(calibration, Tensor) else calibration.samples[[0, 1]][0]


def joined(before: Any, now: Any) -> Any:
    """The rows of a new measurement, in the places of an earlier one of the same network and samples; but
    a row of more seeds stays."""
    if before is None or any(before.get(k) != now[k] for k in ("samples", "float")):
        return now
    rows = {r["method"]: r for r in before["rows"]}
    for r in now["rows"]:
        if len(r["seeds"]) >= len(rows.get(r["method"], r)["seeds"]):
            rows[r["method"]] = r
        else:
            print(f"{r['method']}: the row of seeds {rows[r['method']]['seeds']} stays", flush=True)
    return now | {"rows": list(rows.values())}


def known() -> dict[str, Any]:
    """What was measured so far; read anew each time, so that two runs can share the work."""
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    order = {n: i for i, n in enumerate((*TRAINED, *FOREIGN))}
    return {part: dict(sorted(rows.items(), key=lambda x: order[x[0]])) for part, rows in found.items()}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", metavar="NAME", help="only these")
    p.add_argument("--part", choices=tuple(PARTS), default="equal")
    p.add_argument("--rounding", choices=tuple(ON), action="append", help="of the equal weights (gptq)")
    p.add_argument("--iterations", type=int, default=1000, help="of BRECQ, a block")
    p.add_argument("--only", nargs="+", metavar="ROW", help="only these rows; the others stay")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--out", default="runs/methods", type=Path, help="where finished runs are kept")
    p.add_argument("--limit", type=int, help="test samples at most (all; 2,000 for the ablation)")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    places = {name: place for name, _, place in (d.partition(":") for d in a.data)}
    methods = equal(tuple(a.rounding or ["gptq"])) if a.part == "equal" else PARTS[a.part]()
    methods = {row: spec for row, spec in methods.items() if not a.only or row in a.only}
    limit = a.limit if a.limit is not None or a.part != "ablation" else 2000
    wanted = a.model or {"equal": NETWORKS, "ablation": ABLATED, "reconstruction": REBUILT}.get(a.part, OWN)
    for name in [] if a.write else wanted:
        opened = case(name, places)
        if opened is None:
            continue
        found = measure(name, opened, methods, a, limit)
        results = known()
        results[a.part] = results.get(a.part, {}) | {name: joined(results.get(a.part, {}).get(name), found)}
        write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    write_pages(known())


if __name__ == "__main__":
    main()

"""The packed runtime against float and int8: speed, memory, layers and scaling (docs/runtime.md).

    python benchmarks/runtime.py --data cifar10:DIR --data nmnist:FILE --data camvid:FILE

One thread; all contenders of a case take turns in one run, and ratios are taken inside a round. Each is
checked before it is timed: the float ones against each other in float64, the runtime bit for bit against the
simulation. SpikingJelly comes from the folder PTQ4SNN_SPIKINGJELLY_014, onnx and onnxruntime are used
where they are installed, torch.compile needs a C++ compiler.

Finished parts are kept in --out (runs/runtime) and reused until the runtime's sources change. The figures go
to benchmarks/runtime.json beside those of other processors, the tables in docs/runtime.md and README.md are
written anew from it (--write does only that).

--cpu-baseline avx2 measures what a processor without AVX-512 would do, as near as this one can show it: torch
and the runtime's kernels are held to AVX2; onnxruntime cannot be, so it takes no part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from runtime_parts import page, parts
from runtime_parts.cases import MAIN, Case, Ready, narrow, ready, synthetic, trained
from runtime_parts.machine import BASELINES, VARIABLE, instructions, machine
from runtime_parts.names import cpu_name
from runtime_parts.small import SHAPES, small

from ptq4snn import runtime
from ptq4snn.files import write_whole

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "runtime.md"
README = Path(__file__).parents[1] / "README.md"
RUNTIME = Path(runtime.__file__).parent
BATCHES = (1, 16)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",  # the compiler's time is reported
}
FLOATS = ("spikingjelly", "eager", "compiled")

Part = tuple[str, Callable[[], dict[str, Any]]]


def mark() -> str:
    """Of the runtime's sources and of these programs: what other code has measured is measured anew."""
    digest = hashlib.sha256()
    for root in (RUNTIME, Path(__file__).parent / "runtime_parts"):
        for file in sorted(f for f in root.rglob("*") if f.suffix in (".py", ".h", ".cpp")):
            if file.name not in ("page.py", "goals.py", "names.py"):  # they only write
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def all_parts(a: argparse.Namespace, places: dict[str, str]) -> Iterator[Part]:
    """Name and work of everything that is measured, the most important first."""
    cases = [c for c in [*synthetic(), *trained()] if not a.case or c.name in a.case]
    skip = frozenset({"compiled", "onnx"} if a.quick else {"onnx"} if a.cpu_baseline else ())
    prepared: dict[str, Ready] = {}

    def get(case: Case) -> Ready:
        if case.name not in prepared:
            prepared.clear()  # one at a time: they are large
            prepared[case.name] = ready(case, a.out, places)
        return prepared[case.name]

    def speed(case: Case, batch: int) -> Any:
        return parts.speed(get(case), batch, a.rounds, skip)

    def layers(case: Case, batch: int) -> Any:
        return parts.layers(get(case), batch)

    def memory(case: Case, kinds: Sequence[str]) -> Any:
        return parts.memory_of(get(case), a.out, max(BATCHES), kinds)

    for case in cases:
        if a.quick and case.target is None and case.name != "default":
            continue
        for batch in BATCHES:
            yield f"speed/{case.name}/{batch}", partial(speed, case, batch)
    main = next((c for c in cases if c.name == MAIN), None)
    if main is not None:
        for batch in BATCHES:
            yield f"layers/{MAIN}/{batch}", partial(layers, main, batch)
        yield f"scaling/{MAIN}", partial(parts.scaling, a.out, a.rounds)
    for case in narrow():
        if not a.case or case.name in a.case:
            for batch in BATCHES:
                yield f"widths/{case.name}/{batch}", partial(speed, case, batch)
    for shape in SHAPES:
        yield f"small/{shape}", partial(small, shape, a.out, a.rounds)
    for case in cases:
        if not a.quick and (case.target is None or case.name in (MAIN, synthetic()[-1].name)):
            kinds = FLOATS if case.target is not None else ("spikingjelly",)
            yield f"memory/{case.name}", partial(memory, case, kinds)


def collect(a: argparse.Namespace, places: dict[str, str]) -> dict[str, Any]:
    """Every part, from the store where it is finished."""
    store, found = a.out / f"finished-{instructions()}.json", mark() + (" quick" if a.quick else "")
    known: dict[str, Any] = json.loads(store.read_text("utf-8")) if store.exists() else {}
    results = {}
    for name, work in all_parts(a, places):
        if a.part and name.split("/")[0] not in a.part:
            continue
        stored = known.get(name)
        if a.again or stored is None or stored["mark"] != found:
            print(f"{name} ...", flush=True)
            stored = {"mark": found, "result": work()}
            known[name] = stored
            write_whole(store, json.dumps(known) + "\n")
            page.tell(name, stored["result"])
        results[name] = stored["result"]
    return results


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--case", action="append", metavar="NAME", help="only these")
    p.add_argument(
        "--part", action="append", metavar="KIND", help="only speed, layers, scaling, widths, small, ..."
    )
    p.add_argument(
        "--cpu-baseline", choices=list(BASELINES), help="as if the processor had no more than this"
    )
    p.add_argument("--rounds", type=int, default=9, help="of the interleaved runs")
    p.add_argument("--out", default="runs/runtime", type=Path, help="bundles and finished parts")
    p.add_argument("--quick", action="store_true", help="3 rounds, no compiler, no onnx; nothing is written")
    p.add_argument("--again", action="store_true", help="measure what is finished too")
    p.add_argument("--write", action="store_true", help="only write the page")
    a = p.parse_args()
    torch.set_num_threads(1)
    if not a.write:
        a.rounds = 3 if a.quick else a.rounds
        a.out.mkdir(parents=True, exist_ok=True)
        places = {name: place for name, _, place in (d.partition(":") for d in a.data)}
        found = collect(a, places)
        if a.quick:
            return
        results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"cpus": {}}
        here = machine()
        before = results["cpus"].get(cpu_name(here), {}).get("parts", {})
        results["cpus"][cpu_name(here)] = here | {"parts": before | found}
        write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    for where in (PAGE, README):
        page.write(where, json.loads(RESULTS.read_text("utf-8")))


def environment(arguments: Sequence[str]) -> dict[str, str]:
    """What libraries read when they are loaded."""
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--cpu-baseline", choices=list(BASELINES))
    held = p.parse_known_args(arguments)[0].cpu_baseline
    return ENVIRONMENT | ({} if held is None else BASELINES[held] | {VARIABLE: held})


if __name__ == "__main__":
    wanted = environment(sys.argv[1:])
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)
    main()

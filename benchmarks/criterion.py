"""Which label-free measure of held-out samples tells allocations apart: a table of docs/results.md.

    python benchmarks/criterion.py --data cifar10:DIR --data nmnist:FILE [--model NAME ...] [--limit 2000]

For every network and budget, MPBA at eight points of (beta, P), six random allocations, benefit and (where
the budget is a width) uniform, each by squared error and by replay, on GPTQ's 4-bit weights. Each is judged
twice: on the held-out calibration samples and on test samples. A measure that is worth choosing by orders the
allocations alike on both. Rank correlations go to benchmarks/criterion.json and into docs/results.md (--write
does only that).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptq4snn.allocation.benefit import cheapest
from ptq4snn.allocation.budget import allocate
from ptq4snn.allocation.mixed import Candidates
from ptq4snn.allocation.search import Verdict
from ptq4snn.assemble import Assembly
from ptq4snn.bridge.lattice import Lattice
from ptq4snn.data.samples import SampleBatches
from ptq4snn.data.source import open_samples
from ptq4snn.experiments.bench import today
from ptq4snn.experiments.draws import draw
from ptq4snn.files import write_whole
from ptq4snn.freezing import build_model
from ptq4snn.models.trained import TRAINED
from ptq4snn.pipeline import assemblies, rounded
from ptq4snn.prepare import prepare
from ptq4snn.prepared import Cache, Prepared
from ptq4snn.recipe import Recipe
from ptq4snn.tuning.judging import judge

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
BEGIN, END = "<!-- criterion -->", "<!-- end of criterion -->"
MODELS = ("default", "vgg4-16-nmnist-slow")
BUDGETS = (4.0, 3.0, 2.5)
WIDTHS = (2, 4, 8)
BATCH = 16


def prepared_model(name: str, data: str) -> Prepared:
    entry = TRAINED[name]
    samples = open_samples(data, "calibration", entry.preprocessing, entry.data)
    return prepare(entry.load(), draw(SampleBatches(samples, BATCH), 1024, 0), Recipe.parse("gptq+w4m4"))


def on_test(prepared: Prepared, name: str, data: str, limit: int) -> Prepared:
    """The same model with test samples in the place of the held-out ones, and of those that traces are of."""
    samples = open_samples(data, "test", TRAINED[name].preprocessing, TRAINED[name].data)
    count = min(limit, len(samples))
    batches = tuple(x for x, _ in SampleBatches(samples, BATCH, indices=range(count)))
    return replace(prepared, held_out=batches, kept=batches, cache=Cache())


def candidates(prepared: Prepared, assembly: Assembly, budget: float) -> Iterator[dict[str, Tensor]]:
    """Bits of every neuron in the budget."""
    found = Candidates.of(prepared, assembly)
    for beta in (0.0, 0.4, 0.8, 1.0):
        for percentile in (97.0, 99.0):
            yield found.spread(found.allocate(beta, percentile, budget)[0])
    g = torch.Generator().manual_seed(0)
    for _ in range(6):
        yield found.spread(allocate(torch.rand(len(found.rate), generator=g), found.channels, budget, 98.0))
    costs = torch.cat(
        [torch.stack([assembly.tables[n].cost(b).amin(1) for b in WIDTHS], 1) for n in found.names]
    )
    weight = found.channels.elements.double()[:, None]
    yield found.spread(cheapest(costs * weight, WIDTHS, found.channels, budget))
    if budget in (2, 3, 4, 8):
        yield found.spread(torch.full_like(found.channels.elements, int(budget)))


def measure(name: str, data: str, limit: int) -> dict[str, Any]:
    held = prepared_model(name, data)
    test = on_test(held, name, data, limit)
    recipe = Recipe.parse("gptq+w4m4")
    lattice = rounded(held, Lattice.of(held.folded, held.seen, recipe))
    model = build_model(held, Assembly(lattice))
    rows = {}
    for budget in BUDGETS:
        pairs: list[tuple[Verdict, Verdict]] = []
        for assembly in assemblies(held, lattice):
            for bits in candidates(held, assembly, budget):
                plan = assembly.plan({**assembly.uniform_bits(), **bits})
                pairs.append((judge(held, assembly, model, plan), judge(test, assembly, model, plan)))
                print(f"{name} {budget:g}: {len(pairs)} allocations", flush=True)
        rows[f"{budget:g}"] = row(pairs)
    samples = sum(len(x) for x in test.held_out)
    return {"test_samples": samples, "date": today(), "budgets": rows}


def row(pairs: list[tuple[Verdict, Verdict]]) -> dict[str, Any]:
    held, test = zip(*pairs, strict=True)
    far = [float(v.apart.mean()) for v in test]
    return {
        "allocations": len(pairs),
        "kl": rank_correlation([v.kl for v in held], [v.kl for v in test]),
        "agreement": rank_correlation([v.agreement for v in held], [v.agreement for v in test]),
        "flips": rank_correlation([v.flips for v in held], [v.flips for v in test]),
        "kl_to_test": rank_correlation([v.kl for v in held], far),
        "flips_to_test": rank_correlation([v.flips for v in held], far),
        "test_kl": [min(v.kl for v in test), max(v.kl for v in test)],
        "test_agreement": [min(v.agreement for v in test), max(v.agreement for v in test)],
    }


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's; equal values share their mean rank."""

    def ranks(x: list[float]) -> Tensor:
        v = torch.tensor(x, dtype=torch.float64)
        return (v[:, None] > v).sum(1).double() + ((v[:, None] == v).sum(1) - 1) / 2

    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def table(results: dict[str, Any]) -> str:
    lines = [
        "| network | budget | allocations | KL | agreement | flips | KL, to test divergence | flips, to test "
        "divergence | test agreement % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        for budget, r in found["budgets"].items():
            keys = ("kl", "agreement", "flips", "kl_to_test", "flips_to_test")
            low, high = (100 * v for v in r["test_agreement"])
            cells = [f"`{name}`", budget, str(r["allocations"]), *(f"{r[k]:+.2f}" for k in keys)]
            lines.append("| " + " | ".join([*cells, f"{low:.1f} .. {high:.1f}"]) + " |")
    return "\n".join(lines)


def written(results: dict[str, Any]) -> str:
    """The page with the table that the results give."""
    text = PAGE.read_text("utf-8")
    return text.split(BEGIN)[0] + f"{BEGIN}\n{table(results)}\n{END}" + text.split(END)[1]


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("--data", action="append", default=[], metavar="NAME:PATH")
    p.add_argument("--model", action="append", metavar="NAME")
    p.add_argument("--limit", type=int, default=2000)
    p.add_argument("--write", action="store_true", help="only write the table anew")
    args = p.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not args.write:
        data = {spec.partition(":")[0]: spec for spec in args.data}
        for name in args.model or MODELS:
            wanted = TRAINED[name].data
            if wanted in data:
                results[name] = measure(name, data[wanted], args.limit)
                write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    write_whole(PAGE, written(results))


if __name__ == "__main__":
    main()

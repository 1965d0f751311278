"""`ptq4snn experiment`: a table or figure of the paper, on the model and data that are given."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path

from ptq4snn.cli.compare import changed_fields, print_run
from ptq4snn.experiments.catalog import EXPERIMENTS, find
from ptq4snn.experiments.methods import parse_methods

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    if args.name is None or args.list:
        list_experiments(args.json)
        return
    experiment = find(args.name)
    changes = changed_fields(args)
    if experiment.methods:  # a bad option must not cost a calibration
        parse_methods(experiment.methods, {**experiment.changes, **changes})

    from ptq4snn.cli.inputs import load_cluster, load_data, load_device, load_whole_model, run_setting
    from ptq4snn.experiments.bench import Bench, Conditions
    from ptq4snn.experiments.outcome import identity, run_experiment
    from ptq4snn.files import write_whole
    from ptq4snn.progress import for_terminal

    bench = Bench.of(
        load_whole_model(args),
        load_data(args, "calibration"),
        load_data(args, "test", args.batch_size, args.workers, args.limit),
        args.out,
        Conditions(
            args.limit, args.batch_axis, load_device(args), for_terminal(), cluster=load_cluster(args)
        ),
    )
    ran = replace(run_setting(args), changed=" and ".join(sorted(changes)))
    outcome = run_experiment(experiment, bench, ran, args.seeds, changes, print_run)
    text = json.dumps(outcome.data, indent=2)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", args.model or "default")
    ran_as = identity(experiment, bench, args.seeds, changes, args.limit)[:8]
    base = Path(args.out) / f"{experiment.name}.{name}.{ran_as}"
    write_whole(base.with_name(f"{base.name}.json"), text + "\n")
    write_whole(base.with_name(f"{base.name}.csv"), outcome.csv)
    if outcome.latex:
        write_whole(base.with_name(f"{base.name}.tex"), outcome.latex)
    if args.json:
        print(text)
    else:
        print(
            "\n".join(
                [*outcome.lines, f"data: {base}.json and .csv" + (", table: .tex" if outcome.latex else "")]
            )
        )


def list_experiments(as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": e.name, "title": e.title, "part": e.part} for e in EXPERIMENTS.values()]))
        return
    width = max(map(len, EXPERIMENTS))
    for e in EXPERIMENTS.values():
        print(f"{e.name:<{width}}  {e.title} ({e.part})")

"""`ptq4snn export`: a bundle as sources for another machine; without torch."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ptq4snn.cli.reading import read_array
from ptq4snn.export import CSource, c

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    samples = None if args.samples is None else read_array(args.samples)
    source = c(
        args.bundle, args.out, args.name, section=args.section, weights=args.weights, steps=args.steps,
        path=args.path, samples=samples,
    )  # fmt: skip
    files = [str(Path(args.out) / file) for file in source.files]
    if args.json:
        print(json.dumps(facts(source, files), indent=2))
        return
    print(f"wrote {', '.join(files)}")
    for line in source.facts:
        print(line)


def facts(source: CSource, files: list[str]) -> dict[str, object]:
    figures = {**asdict(source.figures), "flash": source.figures.flash, "ram": source.figures.ram}
    return {"name": source.name, "files": files, "figures": figures, "paths": source.paths}

"""Run as a program: quantize networks and print a hash of all that was observed and decided.

    python decided.py FOLDER THREADS SAMPLES RECIPE...

FOLDER has whole networks as NAME.pt and images as images.pt: random numbers differ between CPUs too.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import torch

from ptq4snn.hashing import digest
from ptq4snn.pipeline import prepare, run
from ptq4snn.recipe import Recipe


def main(folder: Path, threads: int, samples: int, recipes: list[str]) -> dict[str, str]:
    torch.set_num_threads(threads)
    images = torch.load(folder / "images.pt", weights_only=True)[:samples]
    found = {}
    for file in sorted(folder.glob("*.pt")):
        if file.stem == "images":
            continue
        for recipe in recipes:
            made = Recipe.parse(recipe).replace(holdout=16)
            prepared = prepare(torch.load(file, weights_only=False), images, made)
            for name, neuron in prepared.seen.neurons.items():
                found[f"{file.stem} {recipe} seen {name}"] = digest(
                    [getattr(neuron, f.name) for f in fields(neuron)]
                )
            model = run(prepared, made)
            integers = {n: [i.weight, i.bias] for n, i in model.integers.items()}
            found[f"{file.stem} {recipe} integers"] = digest(integers)
            found[f"{file.stem} {recipe} plan"] = digest(repr(model.plan))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))

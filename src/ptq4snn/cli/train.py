"""`ptq4snn train`: weights as safetensors with a card, from a recipe and a labelled data set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ptq4snn
from ptq4snn.cli.inputs import find_entry
from ptq4snn.data.samples import Preprocessing, SampleBatches, Samples
from ptq4snn.data.source import open_labelled
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.factory import find_factory, run_factory
from ptq4snn.progress import for_terminal
from ptq4snn.training.card import card, headline, save_weights
from ptq4snn.training.loop import train
from ptq4snn.training.recipe import TrainingRecipe

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    recipe = TrainingRecipe.parse(args.recipe)
    if args.seed is not None:
        recipe = TrainingRecipe(**{**vars(recipe), "seed": args.seed})
    out = folder(args.out or f"runs/{Path(args.recipe).stem}")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    samples = open_split(args, recipe, "train")
    model, place = train(
        recipe,
        lambda T: make_model(recipe.model, T),
        samples,
        out,
        workers=args.workers,
        compiled=args.compile,
        progress=for_terminal(),
        report=(lambda epoch: None) if args.json else print_epoch,
    )
    test = SampleBatches(open_split(args, recipe, "test"), recipe.batch_size, args.workers)
    result = ptq4snn.evaluate(model, test, progress=for_terminal())
    weights = out / f"{recipe.model.replace(':', '.')}.safetensors"
    save_weights(model, weights, recipe, result)
    data = f"{data_name(args, recipe)}, {len(samples):,} training samples"
    text = card(recipe, data, command(args), model, result, place)
    weights.with_suffix(".md").write_text(text, "utf-8")
    if args.json:
        print(json.dumps({"weights": str(weights), "test": result, "epochs": place.log}, indent=2))
    else:
        print(f"{recipe.model}: {headline(result)}")
        print(f"wrote {weights} ({weights.stat().st_size:,} bytes) and its card")


def folder(name: str) -> Path:
    """The folder of the run, made before the long work."""
    out = Path(name)
    if out.exists() and not out.is_dir():
        raise PTQ4SNNError(f"--out {out} is a file: name a folder")
    out.mkdir(parents=True, exist_ok=True)
    return out


def make_model(name: str, T: int | None) -> nn.Module:
    """The recipe's model with random weights, at T steps (None: its own)."""
    if ":" not in name:
        return find_entry(name).make(**({} if T is None else {"T": T}))
    model = run_factory(name, find_factory(name), *([] if T is None else [T]))
    if not isinstance(model, nn.Module):
        raise PTQ4SNNError(f"{name} returned a {type(model).__name__}: return a torch.nn.Module")
    return model


def open_split(args: argparse.Namespace, recipe: TrainingRecipe, split: Any) -> Samples:
    if ":" in recipe.model:
        return open_labelled(args.data, split, Preprocessing())
    entry = find_entry(recipe.model)
    return open_labelled(args.data, split, entry.preprocessing, entry.data)


def data_name(args: argparse.Namespace, recipe: TrainingRecipe) -> str:
    return str(args.data) if ":" in recipe.model else find_entry(recipe.model).data


def command(args: argparse.Namespace) -> list[str]:
    """The command that makes the weights again; where the data lies does not matter."""
    words = ["ptq4snn", "train", args.recipe, "--data", "DATA"]
    for option in ("seed", "threads"):  # sums depend on the number of threads
        if getattr(args, option) is not None:
            words += [f"--{option}", str(getattr(args, option))]
    return [*words, "--compile"] if args.compile else words


def print_epoch(epoch: dict[str, Any]) -> None:
    held = "" if epoch["validation"] is None else f", held-out {epoch['validation']:.2f} %"
    print(
        f"stage {epoch['stage']} {epoch['kind']}, epoch {epoch['epoch']}/{epoch['epochs']:g}: "
        f"loss {epoch['loss']:.4f}{held}, {epoch['seconds']:.0f} s",
        flush=True,
    )

"""`ptq4snn train`: weights as safetensors with a card, from a recipe and a labelled data set."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ptq4snn
from ptq4snn.cli.inputs import find_entry
from ptq4snn.data.data_digest import FOLDER as HASHES
from ptq4snn.data.samples import Preprocessing, SampleBatches, Samples
from ptq4snn.data.source import DATA, Split, has_splits, open_labelled
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.factory import find_factory, run_factory
from ptq4snn.files import short, write_whole
from ptq4snn.locks import alone
from ptq4snn.models import zoo
from ptq4snn.progress import for_terminal
from ptq4snn.team import Team, from_environment
from ptq4snn.training.card import Origin, card, headline, save_weights
from ptq4snn.training.loop import Conduct, train
from ptq4snn.training.resume import FILE as RESUME
from ptq4snn.training.training_recipe import TrainingRecipe

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    recipe = TrainingRecipe.parse(args.recipe if args.recipe.endswith(".toml") else zoo.find(args.recipe)[0])
    if args.seed is not None:
        recipe = TrainingRecipe(**{**vars(recipe), "seed": args.seed})
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    samples = open_split(args.data, recipe, "train")
    test, tested = test_samples(args, recipe)
    with (
        folder(args.out or f"runs/{Path(args.recipe).stem}") as out,
        from_environment() as team,
        team.led(alone(out, f"--out {short(out)}", folder=True), "locks"),
        nothing_half_made(out) if team.leads else nullcontext(),
    ):
        conduct(args, recipe, samples, (test, tested), out, team)


def conduct(
    args: argparse.Namespace, recipe: TrainingRecipe, samples: Samples, tests: tuple[Samples, str], out: Path,
    team: Team,
) -> None:  # fmt: skip
    """Train, measure and write weights with their card into `out`."""
    test, tested = tests
    model, place = train(
        recipe,
        lambda T: make_model(recipe.model, T),
        samples,
        out,
        Conduct(
            workers=args.workers,
            compiled=args.compile,
            progress=for_terminal(),
            report=(lambda epoch: None) if args.json else print_epoch,
            team=team,
        ),
    )
    batches = SampleBatches(test, recipe.batch_size, args.workers)
    result = ptq4snn.evaluate(model, batches, progress=for_terminal(), team=team)
    if not team.leads:
        return
    weights = out / f"{recipe.model.replace(':', '.')}.safetensors"
    save_weights(model, weights, recipe, result)
    score = headline(result, tested)
    data = f"{data_name(args.data, recipe)}, {len(samples):,} training samples"
    text = card(recipe, model, place, score, Origin(data, command(args), args.license))
    write_whole(weights.with_suffix(".md"), text.encode())
    if args.json:
        print(json.dumps({"weights": str(weights), "test": result, "epochs": place.log}, indent=2))
    else:
        print(f"{recipe.model}: {score}")
        if team.size > 1:
            print(f"{team.size} processes shared the work")
        print(f"wrote {weights} ({weights.stat().st_size:,} bytes) and its card")


@contextmanager
def folder(name: str) -> Iterator[Path]:
    """The folder of the run, made before the long work; taken away again where nothing was put into it."""
    out = Path(name)
    if out.exists() and not out.is_dir():
        raise PTQ4SNNError(f"--out {out} is a file: name a folder")
    made = [p for p in (out, *out.parents) if not p.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield out
    finally:
        with suppress(OSError):  # what is not empty stays
            for empty in made:
                empty.rmdir()


@contextmanager
def nothing_half_made(out: Path) -> Iterator[None]:
    """Of a run that fails only what the next one can go on from stays."""
    hashes = out / HASHES
    there = hashes.exists()
    try:
        yield
    except Exception:
        if not there and not (out / RESUME).exists():
            shutil.rmtree(hashes, ignore_errors=True)
        raise


def make_model(name: str, T: int | None) -> nn.Module:
    """The recipe's model with random weights, at T steps (None: its own)."""
    if ":" not in name:
        return find_entry(name).make(**({} if T is None else {"T": T}))
    model = run_factory(name, find_factory(name), *([] if T is None else [T]))
    if not isinstance(model, nn.Module):
        raise PTQ4SNNError(f"{name} returned a {type(model).__name__}: return a torch.nn.Module")
    return model


def open_split(data: str, recipe: TrainingRecipe, split: Split) -> Samples:
    if ":" in recipe.model:
        return open_labelled(data, split, Preprocessing())
    entry = find_entry(recipe.model)
    return open_labelled(data, split, entry.preprocessing, entry.data)


def test_samples(args: argparse.Namespace, recipe: TrainingRecipe) -> tuple[Samples, str]:
    """What the result is measured on, and its name: a file without a test split has only what it trained."""
    if args.test is not None:
        return open_split(args.test, recipe, "test"), "test samples"
    separate = has_splits(args.data)
    what = "test samples" if separate else "of the training samples themselves (give --test for others)"
    return open_split(args.data, recipe, "test"), what


def data_name(data: str, recipe: TrainingRecipe) -> str:
    """The data set, or the file; never where it lies."""
    name, _, _ = data.partition(":")
    if name in DATA:
        return name
    if ":" not in recipe.model and has_splits(data) and ":" not in data:
        return find_entry(recipe.model).data
    return Path(data).name


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

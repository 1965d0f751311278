"""`ptq4snn quantize`: one bundle with its report and page, or nothing."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import ptq4snn
from ptq4snn.cli.inputs import load_data, load_device, load_loop, load_model
from ptq4snn.drafts import draft_folder
from ptq4snn.errors import PTQ4SNNError, RecipeError
from ptq4snn.extras import is_there, needs
from ptq4snn.files import check_target, short, write_together
from ptq4snn.locks import alone
from ptq4snn.progress import Lines, Progress, Silent, for_terminal
from ptq4snn.recipe import Recipe
from ptq4snn.report.terminal import show
from ptq4snn.team import Team, from_environment

__all__ = ["run"]

OUT = "model.ptq"
REPORT, PAGE = ".report.json", ".report.html"


def run(args: argparse.Namespace) -> None:
    recipe = read_recipe(args)
    out = target(args, recipe)  # first of all: a bad target must not cost a calibration
    with from_environment(args.device) as team, team.led(_alone(out), "locks"):
        make(args, recipe, out, team)


def _alone(out: Path | None) -> AbstractContextManager[None]:
    """The only run that writes there."""
    return nullcontext() if out is None else alone(out, f"--out {short(out)}")


def make(args: argparse.Namespace, recipe: Recipe, out: Path | None, team: Team) -> None:
    """Quantize, save and say what was written."""
    device = load_device(args)
    model, samples = load_model(args), load_data(args, "calibration")
    q = ptq4snn.quantize(
        model,
        samples,
        recipe,
        batch_axis=args.batch_axis,
        device=device,
        progress=steps_shown() if recipe.has_goal else for_terminal(),
        work=args.work,
        loop=load_loop(args),
        team=team,
    )
    if not team.leads:
        return
    written = [] if out is None else save(q, out)
    if args.json:
        print(json.dumps(q.report, indent=2))
        return
    if sys.stdout.isatty():
        show(q.report)
    else:
        print(q.summary())
    if team.size > 1:
        print(f"{team.size} processes shared the work")
    for file in written:
        print(f"wrote {file} ({file.stat().st_size:,} bytes)")
    if out is not None and q.not_lowered:
        print(f"the bundle cannot be run without torch: {q.not_lowered}")
    if out is None:
        print('nothing written: arithmetic "float" is a simulation and cannot be saved')


def steps_shown() -> Progress:
    """Of a search every step is a line on stderr, also where there are no bars."""
    found = for_terminal()
    return Lines() if isinstance(found, Silent) else found


def read_recipe(args: argparse.Namespace) -> Recipe:
    """--recipe, with what the other options change."""
    same_name = (
        "weights", "membrane", "coupling", "allocation", "rounding", "iterations", "objective",
        "state_rounding", "calibration", "seed", "max_drop", "agreement",
    )  # fmt: skip
    options = {name: getattr(args, name) for name in same_name}
    changes = {name: value for name, value in options.items() if value is not None}
    recipe = Recipe.parse(args.recipe)
    if recipe.has_goal or args.max_drop is not None or args.agreement is not None:
        for option in ("weights", "membrane"):
            if getattr(args, option) is not None:
                raise RecipeError(f"--{option} is what a goal (--max-drop, --agreement) looks for: give one")
    if args.membrane is not None and args.coupling is None and recipe.coupling == "none":
        changes["coupling"] = "bridge"  # bits for states that the recipe's m32 would keep
    return recipe.replace(**changes)


def target(args: argparse.Namespace, recipe: Recipe) -> Path | None:
    """Where the bundle goes, checked before the long work; None where there is nothing to save."""
    if recipe.arithmetic == "float":
        if args.out is not None:
            raise RecipeError('arithmetic "float" is a simulation and cannot be saved: leave --out away')
        return None
    out = Path(args.out or OUT)
    if args.work is not None and Path(args.work).exists() and not Path(args.work).is_dir():
        raise PTQ4SNNError(f"--work {args.work} is a file: name a folder")
    for end in ("", REPORT, PAGE):
        check_target(f"{out}{end}", "--out")
    return out


def save(q: Any, out: Path) -> list[Path]:
    """Write bundle, report and page, all or none of them; the bundle last: where it is, its report is.

    Without Jinja2 there is no page.
    """
    page = is_there("jinja2")
    if not page:
        warnings.warn(f"{out.name}{PAGE} is left out: {needs('a page', 'jinja2')}", stacklevel=2)
    with draft_folder(out.parent) as folder:
        draft = folder / out.name
        q.save(draft, page=page)
        pairs = [(Path(f"{draft}{end}"), Path(f"{out}{end}")) for end in ("", REPORT, PAGE)]
        pairs = [(source, place) for source, place in pairs if source.exists()]
        write_together({place: source.read_bytes() for source, place in reversed(pairs)}, sync=True)
        if not Path(f"{draft}{PAGE}").exists():  # nor may that of the bundle before stay
            Path(f"{out}{PAGE}").unlink(missing_ok=True)
    return [place for _, place in pairs]

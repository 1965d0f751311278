"""`ptq4snn evaluate`: how well a bundle does on labelled data, and the float model with --float."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

import ptq4snn
from ptq4snn.bundle.report_check import BUNDLE, REPORT, check_report
from ptq4snn.cli.bundle_data import batches_for
from ptq4snn.cli.inputs import DEFAULT, load_data, load_device, load_loop, load_model
from ptq4snn.cli.limits import limits_of
from ptq4snn.data.samples import SampleBatches
from ptq4snn.discovery.looping import looped
from ptq4snn.discovery.model_digest import weights_digest
from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.evaluation.record_metrics import Gallery, record
from ptq4snn.extras import is_there, needs
from ptq4snn.modules.running import OnRuntime
from ptq4snn.modules.saving import read_report
from ptq4snn.progress import for_terminal
from ptq4snn.runtime import Runtime
from ptq4snn.runtime.loading import read_contents
from ptq4snn.schema.score_types import Limited, Result
from ptq4snn.team import Team, from_environment

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    with from_environment(args.device) as team:
        evaluate(args, team)


def evaluate(args: argparse.Namespace, team: Team) -> None:
    if args.bundle is None and not args.float_too:
        raise PTQ4SNNError("there is nothing to evaluate: name a bundle, or give --float")
    if args.bundle is not None and not Path(args.bundle).is_file():
        raise BundleError(f"there is no bundle {args.bundle}")
    if args.bundle is not None:
        refuse_a_strangers_report(Path(args.bundle))
    device = load_device(args, exact=args.bundle is not None)
    model: nn.Module | None = None
    if on_runtime(args):
        quantized, batches = from_bundle(args)
    else:
        model = load_model(args, weights_matter=args.float_too)
        loop = load_loop(args)
        quantized = None if args.bundle is None else ptq4snn.load(args.bundle, model, loop, limits_of(args))
        model = model if loop is None else looped(model, loop)
        batches = load_data(args, "test", args.batch_size, args.workers, args.limit)
    if args.float_too and quantized is not None:
        check_source(args, quantized.source, model)
    results: dict[str, Result | Limited] = {}
    gallery = Gallery(args.batch_axis)

    def measure(name: str, candidate: Any) -> None:
        if device is not None:
            candidate = candidate.to(device)
        found = ptq4snn.evaluate(
            candidate,
            chosen(batches, args),
            batch_axis=args.batch_axis,
            progress=for_terminal(),
            limit=args.limit,
            team=team,
        )
        limited: Limited = {**found, "limit": args.limit}
        results[name] = found if args.limit is None else limited
        if not args.json:
            print(f"{name}: {sentence(results[name], args.limit)}")
        if args.bundle is not None and team.leads and results[name]["task"] == "segmentation":
            gallery.look(name, candidate, chosen(batches, args))

    if args.float_too:
        measure("float", model)
    if quantized is not None:
        measure(str(args.bundle), quantized)
    if args.json:
        print(json.dumps(results, indent=2))
    if team.size > 1 and not args.json:
        print(f"{team.size} processes shared the work")
    if args.bundle is not None and team.leads:
        keep(args, results, gallery)


def on_runtime(args: argparse.Namespace) -> bool:
    """Whether the bundle is enough: it has a program, and nothing of the model is asked for."""
    of_model = (args.model, args.checkpoint, args.classes, args.T)
    return args.bundle is not None and args.data is not None and not args.float_too and not any(of_model)


def from_bundle(args: argparse.Namespace) -> tuple[Any, Iterable[Any]]:
    """The program of a bundle as a model, and its data."""
    found = read_contents(args.bundle, limits_of(args))
    if found.model is None:
        why = " ".join(found.not_lowered.split())[:500]
        raise BundleError(f"{args.bundle} has no integer program ({why}): give --model")
    if args.device not in (None, "cpu"):
        raise PTQ4SNNError(f"--device {args.device}: a bundle alone runs on the cpu; give --model")
    program = found.model.program
    args.batch_axis = program.input.batch_axis
    batches = batches_for(args.data, program, args.batch_size, args.workers, args.limit)
    return OnRuntime(Runtime(found.model)), batches


def check_source(args: argparse.Namespace, source: str | None, model: Any) -> None:
    """The float model must be the one that was quantized: a random one would make a report that lies."""
    if source is None:
        raise BundleError(
            f"{args.bundle} is of an older version and does not say which float weights it was made from: "
            f"quantize again, or evaluate the float model alone"
        )
    if source != weights_digest(model):
        alone = f"--model {args.model or DEFAULT} without --checkpoint"
        given = alone if args.checkpoint is None else f"--checkpoint {args.checkpoint}"
        raise BundleError(
            f"{args.bundle} was made from other float weights than those of {given}: give the checkpoint "
            f"that was quantized, --checkpoint FILE"
        )


def refuse_a_strangers_report(bundle: Path) -> None:
    """Before anything is measured: results are written into the report beside the bundle."""
    file = Path(f"{bundle}{REPORT}.json")
    report = read_report(file)
    if BUNDLE in report:
        check_report(report, file, bundle)


def keep(args: argparse.Namespace, results: dict[str, Result | Limited], gallery: Gallery) -> None:
    """Record the results in the report of the bundle, and in its page, as far as they are there."""
    bundle, before = str(args.bundle), results.get("float")
    file, page = Path(f"{bundle}.report.json"), Path(f"{bundle}.report.html")
    if not file.is_file():
        return
    examples = gallery.examples(bundle, "float")
    try:
        report = record(file, args.data or DEFAULT, args.limit, results[bundle], before, examples)
        written = str(file)
        if page.is_file() and not is_there("jinja2"):
            warnings.warn(f"{page} was not made anew: {needs('a page', 'jinja2')}", stacklevel=2)
        elif page.is_file():
            from ptq4snn.report.page import write_page
            from ptq4snn.targets.ways_out import ways_out

            write_page(report, page, ways=ways_out(Path(bundle), limits_of(args)))
            written += f" and {page.name}"
    except (OSError, PTQ4SNNError) as why:  # what was measured is told already
        warnings.warn(f"the result was not recorded: {why}", stacklevel=2)
        return
    except (AttributeError, LookupError, TypeError, ValueError) as why:  # somebody edited the report
        warnings.warn(f"{page} was not made anew, its report is not whole: {why!r}", stacklevel=2)
        return
    if not args.json:
        print(f"recorded in {written}")


def chosen(batches: Iterable[Any], args: argparse.Namespace) -> Iterable[Any]:
    """A factory's own SampleBatches are read by --workers, and not beyond --limit, as data sets are."""
    if not isinstance(batches, SampleBatches):
        return batches
    return SampleBatches(batches.samples, batches.batch_size, args.workers, batches.indices[: args.limit])


def sentence(result: Result, limit: int | None) -> str:
    """One line for a person."""
    maps = result["task"] == "segmentation"
    things = "images" if maps else "samples"
    count = f"{result['samples']:,} {things}"
    if result["mIoU" if maps else "accuracy"] is None:
        return f"accuracy unknown, the {count} have no labels"
    if maps:
        scores = " ".join(f"{name} {result[name]:.2f} %" for name in ("aAcc", "mIoU", "mAcc"))
    else:
        scores = f"{result['accuracy']:.2f} % (Acc@5 {result['accuracy_top5']:.1f} %)"
    among = f"{count} (--limit)" if result["samples"] == limit else count
    return f"{scores} of {among}, {rate(result['throughput']['samples_per_second'])} {things}/s"


def rate(value: float) -> str:
    """Whole numbers where they tell enough."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"

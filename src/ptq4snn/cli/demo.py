"""`ptq4snn demo`: what each way of quantizing costs on two networks, the runtime's speed, a page to see."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.extras import is_there
from ptq4snn.files import check_target
from ptq4snn.progress import for_terminal

if TYPE_CHECKING:
    from ptq4snn.cli.demo_rows import Study

__all__ = ["run"]

Row = dict[str, Any]


def formatted(pattern: str) -> Callable[[Any], str]:
    return lambda value: "-" if value is None else pattern.format(value)


# title, key, format
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("setting", "setting", str),
    ("accuracy %", "accuracy", formatted("{:.2f}")),
    ("change", "change", formatted("{:+.2f}")),
    ("   +-", "error", formatted("{:.2f}")),
    ("average bits", "average_bits", formatted("{:.3f}")),
    ("saturation %", "saturation", formatted("{:.3f}")),
    ("weight bytes", "weight_bytes", formatted("{:,}")),
    ("state bytes", "state_bytes", formatted("{:,}")),
)
SETTING_WIDTH = 25


def run(args: argparse.Namespace) -> None:
    from ptq4snn.cli.demo_end import speed, written
    from ptq4snn.cli.demo_rows import BRIEF, FULL, NETWORKS, SETTINGS, Limits, Study

    folder = target(args.out)  # first of all: a bad folder must not cost a minute
    settings, limits = (FULL, Limits()) if args.full else (SETTINGS, BRIEF)
    found = []
    for network in NETWORKS:
        data = args.data if network.data == "default" and args.data != "default" else None
        study = Study(network, limits, for_terminal(), data)
        rows = list(study.rows(settings)) if args.json else shown(study, settings)
        files = written(study, folder)
        found.append(facts(study, rows) | {"speed": speed(study, files[0]), "files": list(map(str, files))})
        if not args.json:
            print("\n".join(ending(found[-1])), flush=True)
    if args.json:
        print(json.dumps({"networks": found}, indent=2))


def target(out: str) -> Path:
    """The folder that --out names; it is made when there is something to put into it."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise PTQ4SNNError(f"--out {folder} is a file: name a folder")
    check_target(folder / "model.ptq" if folder.exists() else folder, "--out")
    return folder


def facts(study: Study, rows: list[Row]) -> dict[str, Any]:
    return {
        "model": study.network.model,
        "about": study.network.about,
        "calibration_samples": len(study.calibration),
        "test_samples": study.samples,
        "rows": rows,
    }


def shown(study: Study, settings: Sequence[tuple[str, str]]) -> list[Row]:
    """The rows, printed: on a terminal as one table, else each as soon as it is known."""
    found: list[Row] = []

    def kept() -> Iterator[Row]:
        for row in study.rows(settings):
            found.append(row)
            yield row

    for line in opening(study):
        print(line, flush=True)
    if sys.stdout.isatty() and is_there("rich"):
        print_rich(list(kept()))
    else:
        for line in lines(kept()):
            print(line, flush=True)
    return found


def opening(study: Study) -> list[str]:
    """Which network, and how many samples stand behind a figure."""
    network, n = study.network, study.samples
    return [
        f"{network.model}: {network.about}",
        f"accuracy of {n:,} test {network.samples}; {len(study.calibration):,} others, without labels, "
        "calibrated",
        "+- is the 95 % interval of the change from float, on the same samples: a change within it is noise",
        "",
    ]


def ending(found: dict[str, Any]) -> list[str]:
    """How fast the default is, and where its page lies."""
    s = found["speed"]
    return [
        "",
        f"speed, a sample at a time: {s['float_ms']:.3g} ms in torch (float, eager), "
        f"{s['runtime_ms']:.3g} ms in the packed runtime (W4/M4 default), {s['ratio']:.1f}x",
        f"  one thread, taking turns, {s['kernels']} kernels, {s['processor']}",
        *(f"{'page' if file.endswith('.html') else 'file'}: {file}" for file in found["files"]),
        "",
    ]


def cells(row: Row) -> list[str]:
    return [show(row[key]) for _, key, show in COLUMNS]


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """The table as plain text, each line as soon as its row is known."""
    titles = [title for title, _, _ in COLUMNS]
    header = align(titles, titles)
    yield header
    yield "-" * len(header)
    for row in rows:
        yield align(cells(row), titles)


def align(texts: list[str], titles: list[str]) -> str:
    """First column to the left, numbers to the right under their titles."""
    numbers = (text.rjust(len(title)) for text, title in zip(texts[1:], titles[1:], strict=True))
    return "  ".join([texts[0].ljust(SETTING_WIDTH), *numbers])


def print_rich(rows: Iterable[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, (title, _, _) in enumerate(COLUMNS):
        table.add_column(title, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row))
    Console().print(table)

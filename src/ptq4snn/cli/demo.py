"""`ptq4snn demo`: what each way of quantizing costs, in one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ptq4snn.extras import is_there
from ptq4snn.progress import for_terminal

__all__ = ["run"]

Row = dict[str, Any]


def formatted(pattern: str) -> Callable[[Any], str]:
    return lambda value: "-" if value is None else pattern.format(value)


# title, key, format
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("setting", "setting", str),
    ("accuracy %", "accuracy", formatted("{:.2f}")),
    ("change", "change", formatted("{:+.2f}")),
    ("average bits", "average_bits", formatted("{:.3f}")),
    ("saturation %", "saturation", formatted("{:.3f}")),
    ("weight bytes", "weight_bytes", formatted("{:,}")),
    ("state bytes", "state_bytes", formatted("{:,}")),
)
SETTING_WIDTH = 24


def run(args: argparse.Namespace) -> None:
    from ptq4snn.cli.demo_rows import rows

    found = rows(for_terminal(), args.data)
    if args.json:
        print(json.dumps(list(found), indent=2))
    elif sys.stdout.isatty() and is_there("rich"):
        print_rich(list(found))
    else:
        for line in lines(found):
            print(line, flush=True)


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

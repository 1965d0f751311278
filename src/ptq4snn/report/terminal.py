"""A report or a table on the terminal: in colour where there is one, else plain ASCII."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from ptq4snn.extras import is_there
from ptq4snn.report.screen import WIDTH, Line, screen
from ptq4snn.report.text import Marks, printable
from ptq4snn.schema.report_types import Report

__all__ = ["plain", "rich_text", "show", "show_lines"]

LEAST = 80  # columns of the narrowest terminal that the screen is made for
PROBE = "▁▏→×─·░"


def show(report: Report, everything: bool = False) -> None:
    """Print a report to stdout; `everything`: all of its layers."""
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH
    marks = Marks(unicode=terminal and _shown(PROBE) == PROBE)
    lines = screen(report, everything, marks, min(WIDTH, max(LEAST, columns)))
    if terminal and is_there("rich") and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        _print_coloured(lines)
    else:
        show_lines(plain(lines).splitlines())


def show_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout as they are; neither steer the terminal nor fail on what it cannot show."""
    for line in lines:
        sys.stdout.write(f"{_shown(printable(line))}\n")


def plain(lines: Iterable[Line]) -> str:
    """Without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def rich_text(line: Line) -> Any:
    from rich.text import Text  # here, because a piped run must not pay for the import

    return Text.assemble(*line)


def _print_coloured(lines: Iterable[Line]) -> None:
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    for line in lines:
        console.print(rich_text(line), soft_wrap=True)


def _shown(text: str) -> str:
    coding = sys.stdout.encoding or "ascii"
    return text.encode(coding, "replace").decode(coding)

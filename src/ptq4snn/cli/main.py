"""Entry point: parse, run one command, turn what the user can mend into one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ptq4snn.cli.options import build_parser
from ptq4snn.errors import PTQ4SNNError, ToldElsewhere
from ptq4snn.files import short
from ptq4snn.memory import ran_out
from ptq4snn.team import number_here

__all__ = ["main"]

USER_ERROR, INTERRUPTED = 2, 130
GRACE = 5.0  # seconds in which the first process says the same, and torchrun ends the others


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        args = build_parser().parse_args(argv)
        with short_warnings(), one_voice():
            code: int | None = args.run(args)
            sys.stdout.flush()
        return code or 0
    except ToldElsewhere:
        return USER_ERROR
    except PTQ4SNNError as e:
        return print_error(str(e))
    except BrokenPipeError:  # the reader of our output has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        where = f": {short(e.filename)}" if e.filename else ""
        return print_error(f"{e.strerror or e}{where}")
    except (MemoryError, RuntimeError) as e:
        if not ran_out(e):
            raise
        return print_error("there is not enough memory: take fewer samples or time steps at a time")
    except KeyboardInterrupt:
        print("ptq4snn: interrupted", file=sys.stderr)
        return INTERRUPTED


def print_error(message: str) -> int:
    who = f"process {number_here()}: " if number_here() else ""
    print(f"ptq4snn: error: {who}{' '.join(message.split())}", file=sys.stderr)
    return USER_ERROR


@contextmanager
def one_voice() -> Iterator[None]:
    """Of the processes that share a run the first one speaks; the others say only why they alone end."""
    if number_here() == 0:
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123
        try:
            yield
        except PTQ4SNNError as why:
            if not (why.speaks or isinstance(why, ToldElsewhere)):  # from before they found each other
                time.sleep(GRACE)
            raise


@contextmanager
def short_warnings() -> Iterator[None]:
    """One line per warning, without file and source line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if number_here():
            return
        print(f"ptq4snn: warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield

"""Entry point: parse, run one command, turn what the user can mend into one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ptq4snn.cli.options import build_parser
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.files import short

__all__ = ["main"]

USER_ERROR, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        with short_warnings():
            code: int | None = args.run(args)
            sys.stdout.flush()
        return code or 0
    except PTQ4SNNError as e:
        return print_error(str(e))
    except BrokenPipeError:  # the reader of our output has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        where = f": {short(e.filename)}" if e.filename else ""
        return print_error(f"{e.strerror or e}{where}")
    except MemoryError:
        return print_error("there is not enough memory: take fewer samples or time steps at a time")
    except KeyboardInterrupt:
        print("ptq4snn: interrupted", file=sys.stderr)
        return INTERRUPTED


def print_error(message: str) -> int:
    print(f"ptq4snn: error: {' '.join(message.split())}", file=sys.stderr)
    return USER_ERROR


@contextmanager
def short_warnings() -> Iterator[None]:
    """One line per warning, without file and source line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"ptq4snn: warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield

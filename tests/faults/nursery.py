"""Commands in processes that start at once: a parent that has imported torch forks one child for each.

The parent reads one JSON line [folder, arguments] from stdin, and answers with the child's number, then with
its exit code (that of a killed one is negative, the signal's).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Nursery"]

PARENT = """
import json, os, sys
import torch
import ptq4snn.cli.compare, ptq4snn.cli.quantize, ptq4snn.cli.train, ptq4snn.experiments.compare
import ptq4snn.api, ptq4snn.training.loop, ptq4snn.cli.inputs
from ptq4snn.cli import main

def child(folder, words):
    os.chdir(folder)
    sys.path.insert(0, folder)
    log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1), os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os._exit(main(words))
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(99)

print("ready", flush=True)
for line in sys.stdin:
    folder, words = json.loads(line)
    number = os.fork()
    if number == 0:
        child(folder, words)
    print(number, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
"""


class Nursery:
    """One parent; its children run one after the other."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        assert self.read() == "ready"

    def read(self) -> str:
        assert self.parent.stdout is not None
        return self.parent.stdout.readline().strip()

    def run(
        self, folder: Path, words: list[str], sent: signal.Signals | None = None, after: float = 0.0
    ) -> int:
        """The exit code of a command; a signal is sent to it after so many seconds."""
        assert self.parent.stdin is not None
        self.parent.stdin.write(json.dumps([str(folder), words]) + "\n")
        self.parent.stdin.flush()
        number = int(self.read())
        if sent is not None:
            time.sleep(after)
            with suppress(ProcessLookupError):  # it was faster
                os.kill(number, sent)
        return int(self.read())

    def close(self) -> None:
        self.parent.kill()
        self.parent.communicate()

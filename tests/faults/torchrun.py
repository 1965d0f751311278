"""Commands in processes that torchrun starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["torchrun"]


def torchrun(
    folder: Path, processes: int, words: list[str], timeout: float = 300.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc-per-node N -m ptq4snn WORDS` in the folder."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, *launch, "-m", "ptq4snn", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
        | environment,
    )

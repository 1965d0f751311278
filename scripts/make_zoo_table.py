"""Write docs/zoo.md: what becomes of other people's networks (tests/frameworks/zoo_cases.py).

    PTQ4SNN_SPIKINGJELLY_014=... PTQ4SNN_SPIKINGJELLY_200=... python scripts/make_zoo_table.py

The two generations of SpikingJelly cannot live in one process: each is asked in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAMILIES = {
    "SpikingJelly 0.0.0.0.14": ("spikingjelly", "PTQ4SNN_SPIKINGJELLY_014"),
    "SpikingJelly 2.0.0": ("spikingjelly", "PTQ4SNN_SPIKINGJELLY_200"),
    "snnTorch 1.0.0": ("snntorch", None),
}
HEAD = """# Other people's networks

Networks of SpikingJelly's zoo, what its `ann2snn` makes of an ANN (T = 32), and those of snnTorch's
tutorials, their code unmodified, in small sizes and without training (spiking_vgg with one linear layer
for its classifier). *runs*: quantized to W4/M4, saved, loaded, and the packed runtime gives every bit of the
simulation on all kernels; else the sentence that refuses it. `python scripts/make_zoo_table.py` writes this
page, tests compare it.

| framework | network | outcome |
|---|---|---|
"""


def print_rows(family: str) -> None:
    """The rows of one family, in this process."""
    sys.path.insert(0, str(ROOT / "tests"))
    import torch
    from frameworks import zoo_cases

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind = FAMILIES[family][0]
    cases = zoo_cases.spikingjelly_cases() if kind == "spikingjelly" else zoo_cases.snntorch_cases()
    with tempfile.TemporaryDirectory() as folder:
        for c in cases:
            print(f"| {family} | {c.name} | {zoo_cases.outcome(c, Path(folder))} |", flush=True)


def main() -> None:
    if len(sys.argv) > 1:
        print_rows(sys.argv[1])
        return
    page = HEAD
    for family, (_, variable) in FAMILIES.items():
        path = [os.environ[variable]] if variable else []
        path += [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        run = subprocess.run(
            [sys.executable, __file__, family], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )  # fmt: skip
        page += "".join(f"{line}\n" for line in run.stdout.splitlines() if line.startswith(f"| {family}"))
    (ROOT / "docs" / "zoo.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

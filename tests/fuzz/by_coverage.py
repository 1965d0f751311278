"""Fuzzing by coverage, by hand or from test_coverage.py:

    python tests/fuzz/by_coverage.py READER --seconds 600 [--keep FOLDER]

Atheris keeps each file that reaches a line of ptq4snn that none before it reached, and changes these
further: by bytes, or by their structure (mutate.py). The first file that a reader neither takes nor refuses
by a sentence of ours ends the run with its traceback, and is written beside --keep, as is one that takes too
long or too much memory.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["ptq4snn"]):
    from fuzz.mutate import restructured
    from fuzz.reached import unpack
    from fuzz.readers import READERS

    from ptq4snn.errors import PTQ4SNNError

    with suppress(ImportError):  # what a reader imports when it is called
        import ptq4snn.interchange.nir_reading  # noqa: F401

LONGEST = 2**17  # bytes of a file
SECONDS, MEGABYTES = 30, 4096  # of a case, and of the process


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("reader", choices=sorted(READERS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="folder of the files that reached something new")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    reader = READERS[args.reader]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        case = Path(folder) / f"case{reader.suffix}"
        kept = args.keep or Path(folder) / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        seed = reader.seed()
        for number, content in enumerate([seed, *unpack(args.reader)]):
            (kept / f"seed-{number}").write_bytes(content)

        def one(data: bytes) -> None:
            case.write_bytes(data)
            with suppress(PTQ4SNNError):
                reader.read(case)

        def mutate(data: bytes, most: int, number: int) -> bytes:
            r = random.Random(number)
            if not reader.bytewise or r.random() < 0.5:
                with suppress(Exception):  # what is damaged already has no structure
                    return restructured(r, reader.suffix, data if r.random() < 0.7 else seed)[:most]
            return bytes(atheris.Mutate(data, most)) if reader.bytewise else data

        limits = (f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-max_total_time={args.seconds}")
        where = f"-artifact_prefix={kept.parent}/{args.reader}-"
        options = (*limits, where, f"-max_len={LONGEST}", "-len_control=0", "-print_final_stats=1", str(kept))
        atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

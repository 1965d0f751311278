"""Files that somebody damaged or made up: every reader takes them or says one sentence, and nothing else."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import pytest
from fuzz.bounds import bounded
from fuzz.mutate import damaged, restructured
from fuzz.readers import READERS

from ptq4snn.errors import PTQ4SNNError

CASES = int(os.environ.get("PTQ4SNN_FUZZ", "600" if os.environ.get("PTQ4SNN_FULL") == "1" else "60"))
LONGEST = 3000  # characters of a sentence


@pytest.mark.parametrize("name", sorted(READERS))
def test_only_our_own_errors_come_out(name: str, tmp_path: Path) -> None:
    if name == "nir":
        pytest.importorskip("nir")
    reader, r = READERS[name], random.Random(name)
    path, seed = tmp_path / f"case{reader.suffix}", reader.seed()
    path.write_bytes(seed)
    reader.read(path)  # the seed itself is taken
    refused = 0
    for case in range(CASES):
        data = damaged(r, seed) if case % 2 and reader.bytewise else restructured(r, reader.suffix, seed)
        path.write_bytes(data)
        try:
            with bounded(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader.read(path)
        except PTQ4SNNError as why:
            refused += 1
            assert len(str(why)) < LONGEST, (case, str(why)[:200])
        except Exception as why:
            pytest.fail(f"case {case} of {name}: {type(why).__name__}: {why}")
    assert refused > CASES // 20  # the changes matter

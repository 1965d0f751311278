"""Hashes of content: equal values alike, anything else apart, in any process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ptq4snn.hashing import Hash, digest, file_digest


def test_equal_values_are_alike() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert digest(x) == digest(x.numpy()) == digest(x.t().contiguous().t()) == digest(x.numpy().astype(">f4"))
    assert digest({"a": 1, "b": [2, None]}) == digest({"b": (2, None), "a": 1})
    assert digest(1, "a") == Hash(1, "a").hexdigest() and digest(np.int64(3)) == digest(3)
    assert digest(torch.eye(3).to_sparse()) == digest(torch.eye(3))


DIFFERENT: list[Any] = [
    None, "None", 0, 0.0, False, "", b"", [], {}, [[]], ["ab"], ["a", "b"], {"a": "b"}, torch.zeros(0),
    torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.float64),
    torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3).bool(),
    torch.tensor(0.0), torch.zeros(1), torch.zeros(2, dtype=torch.complex64),
]  # fmt: skip


def test_other_values_are_apart() -> None:
    assert len({digest(value) for value in DIFFERENT}) == len(DIFFERENT)
    assert digest("a", "b") != digest("ab") != digest(["a", "b"])
    with pytest.raises(TypeError, match="object"):
        digest(object())
    with pytest.raises(TypeError, match="set"):
        digest({"a", "b"})
    with pytest.raises(TypeError, match="Python objects"):
        digest(np.array([None]))


def test_of_another_process(tmp_path: Path) -> None:
    code = "from ptq4snn.hashing import digest; print(digest({'b': 1.5, 'a': ['x']}))"
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(2)]
    assert found[0].stdout == found[1].stdout == digest({"a": ["x"], "b": 1.5}) + "\n"


def test_of_a_file(tmp_path: Path) -> None:
    import hashlib

    (tmp_path / "f").write_bytes(b"abc" * 3_000_000)
    assert file_digest(tmp_path / "f") == hashlib.sha256(b"abc" * 3_000_000).hexdigest()

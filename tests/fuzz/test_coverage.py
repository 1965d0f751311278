"""What fuzzing by coverage found once; and more of it with PTQ4SNN_FULL=1, where its tools are there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz.bounds import bounded
from fuzz.native_fuzzer import CORPUS, build_fuzzer, find_clang, fuzz, write_seeds
from fuzz.reached import archive, unpack
from fuzz.readers import READERS

from ptq4snn.errors import PTQ4SNNError

BROKEN = sorted((Path(__file__).parent / "corpus" / "broken").iterdir())
SECONDS = int(os.environ.get("PTQ4SNN_FUZZ_SECONDS", "15"))  # for each reader
FULL = pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1 fuzzes for minutes")


@pytest.mark.parametrize("file", BROKEN, ids=lambda p: p.name)
def test_a_file_that_once_broke_its_reader(file: Path, tmp_path: Path) -> None:
    name = file.name.partition("-")[0]
    if name == "nir":
        pytest.importorskip("nir")
    reader = READERS[name]
    case = tmp_path / f"case{reader.suffix}"
    case.write_bytes(file.read_bytes())
    with bounded(), warnings.catch_warnings(), suppress(PTQ4SNNError):
        warnings.simplefilter("ignore")
        reader.read(case)


@pytest.mark.parametrize("name", [name for name in sorted(READERS) if archive(name).exists()])
def test_what_fuzzing_reached_is_read(name: str, tmp_path: Path) -> None:
    if name == "nir":
        pytest.importorskip("nir")
    reader = READERS[name]
    case = tmp_path / f"case{reader.suffix}"
    for content in unpack(name):
        case.write_bytes(content)
        with bounded(), warnings.catch_warnings(), suppress(PTQ4SNNError):
            warnings.simplefilter("ignore")
            reader.read(case)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bundle-threshold-0", "a threshold is no whole number in 1 "),
        ("cifar-labels", "truncated or not a CIFAR file"),
        ("cifar-memo", "truncated or not a CIFAR file"),
        ("nir-delay", r"the delay of 'delay' is \d+ steps"),
        ("nir-unwritten", "bytes of numbers: a graph may have"),
        ("npz-encrypted", "truncated or not a .npz file of numbers"),
    ],
)
def test_what_is_said_of_it(name: str, said: str, tmp_path: Path) -> None:
    """Each is refused for the fault that it is kept for."""
    kind = name.partition("-")[0]
    if kind == "nir":
        pytest.importorskip("nir")
    case = tmp_path / f"case{READERS[kind].suffix}"
    case.write_bytes((CORPUS.parent / "broken" / name).read_bytes())
    with bounded(), pytest.raises(PTQ4SNNError, match=said):
        READERS[kind].read(case)


@FULL
@pytest.mark.full
@pytest.mark.parametrize("name", sorted(READERS))
def test_no_reader_breaks(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install atheris")
    if name == "nir":
        pytest.importorskip("nir")
    script = Path(__file__).parent / "by_coverage.py"
    command = [sys.executable, str(script), name, "--seconds", str(SECONDS), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "DONE" in done.stderr


@FULL
@pytest.mark.full
def test_the_native_checker_and_kernels_hold(tmp_path: Path) -> None:
    clang = find_clang()
    if clang is None:
        pytest.skip("there is no clang++ with libFuzzer (Debian: clang-14, libclang-rt-14-dev)")
    program = tmp_path / "fuzz_plan"
    build_fuzzer(clang, program)
    (tmp_path / "kept").mkdir()
    write_seeds(tmp_path / "seeds")
    done = fuzz(program, [tmp_path / "kept", CORPUS, tmp_path / "seeds"], 4 * SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DONE" in done.stderr

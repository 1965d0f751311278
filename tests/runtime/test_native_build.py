"""Building the kernels, and doing without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from runtime.native_tools import levels, samples
from runtime.programs import random_model

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.runtime import native
from ptq4snn.runtime.engine import Runtime
from ptq4snn.runtime.native import NativeExecutor, available, binding, build, planner


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The library's place is an empty one."""
    levels()
    place = tmp_path / build.LIBRARY.name
    monkeypatch.setattr(build, "LIBRARY", place)
    binding.library.cache_clear()
    yield place
    monkeypatch.undo()
    binding.library.cache_clear()


def test_without_a_library_numpy_is_used(elsewhere: Path) -> None:
    model = random_model(0)
    assert available() == ()
    assert native.peak(0, 1) is None
    assert Runtime(model, "auto").kernels == "numpy"
    with pytest.raises(PTQ4SNNError, match="not built"):
        NativeExecutor(model)


def test_a_stale_library_is_not_used(elsewhere: Path) -> None:
    real = Path(build.__file__).with_name(elsewhere.name)
    stale = real.read_bytes().replace(build.source_hash().encode(), b"0123456789abcdef")
    elsewhere.write_bytes(stale)
    with pytest.warns(UserWarning, match="built from other sources"):
        assert available() == ()


def test_a_file_that_is_no_library_is_not_used(elsewhere: Path) -> None:
    elsewhere.write_bytes(b"no library " + build.source_hash().encode())
    with pytest.warns(UserWarning, match="cannot be loaded"):
        assert available() == ()


def test_the_variable_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    levels()
    monkeypatch.setenv("PTQ4SNN_KERNELS", "numpy")
    binding.library.cache_clear()
    assert available() == ()
    monkeypatch.undo()
    binding.library.cache_clear()
    assert available() == levels()


def test_the_hash_is_of_every_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hot").mkdir()
    for name, text in (("a.cpp", "1"), ("hot/b.h", "2")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    first = build.source_hash()
    (tmp_path / "hot" / "b.h").write_text("3")
    assert build.source_hash() != first
    (tmp_path / "hot" / "b.h").write_text("2")
    assert build.source_hash() == first


def test_no_compiler_is_one_sentence(tmp_path: Path) -> None:
    """As a program with an empty PATH: it exits, says why, and leaves nothing behind."""
    out = tmp_path / "_kernels.so"
    environment = {k: v for k, v in os.environ.items() if k not in ("PATH", "CXX")} | {"PATH": str(tmp_path)}
    command = [sys.executable, str(Path(build.__file__)), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "there is no C++ compiler" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    false = tmp_path / "c++"
    false.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 1\n")
    false.chmod(0o755)
    monkeypatch.setenv("CXX", str(false))
    place = tmp_path / "out"
    place.mkdir()
    with pytest.raises(build.BuildError, match="error: no such thing"):
        build.build(place / "_kernels.so", build.Options(build.find_compiler()))
    assert list(place.iterdir()) == []


def test_a_fresh_library_is_not_built_again(capsys: pytest.CaptureFixture[str]) -> None:
    levels()
    assert build.main([]) == 0
    assert capsys.readouterr().err == ""


def test_the_kernels_refuse_a_plan_that_is_cut_off() -> None:
    levels()
    lib = binding.library()
    assert lib is not None
    plan = planner.plan_model(random_model(1), [])
    for size in (0, 8, 90, plan.block.nbytes // 2, plan.block.nbytes - 64):
        with pytest.raises(PTQ4SNNError, match="refuse the model"):
            binding.Engine(lib, plan.block[:size].copy(), lib.levels[-1])


def test_without_torch() -> None:
    """The native runtime imports no torch."""
    levels()
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from ptq4snn.runtime.native import available\n"
        "print(*available())"
    )
    path = os.pathsep.join([str(Path(build.__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.split() == list(levels()), done.stderr


def test_the_runtime_uses_them_and_gives_the_same() -> None:
    model = random_model(2)
    levels()
    fast, slow = Runtime(model, "auto"), Runtime(model, "numpy")
    assert fast.kernels == levels()[-1]
    shape = list(model.program.input.shape)
    x = samples(model, 0, 2, 3).reshape(-1, 2, *shape)
    axes = model.program.input
    if axes.time_axis is None:
        given = np.moveaxis(x[0], 0, axes.batch_axis)
    else:
        given = np.moveaxis(x, (0, 1), (axes.time_axis, axes.batch_axis))
    for a, b in zip(_outputs(fast(given)), _outputs(slow(given)), strict=True):
        np.testing.assert_array_equal(a, b)


def _outputs(y: object) -> tuple[object, ...]:
    return y if isinstance(y, tuple) else (y,)


def test_every_level_that_the_machine_has_is_there() -> None:
    """A level whose sources do not compile would be left out without a word."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    wanted = {
        "avx2": {"avx2", "fma", "bmi2"},
        "avx512bw": {"avx512bw", "avx512vl", "avx512dq"},
        "avx512vnni": {"avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
        "avx512": {"avx512vbmi", "avx512_vbmi2", "avx512_vnni"},
    }
    for level, needs in wanted.items():
        assert (level in levels()) == (needs <= flags)

"""One run at a time: the second is told who is there, a dead run's lock is taken over."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ptq4snn
from ptq4snn import locks
from ptq4snn.errors import OutputError, UnsupportedModel
from ptq4snn.locks import alone

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
HOLDER = """
import sys
from ptq4snn.locks import alone
with alone(sys.argv[1], "x", folder=sys.argv[2] == "folder"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.2)


def holder(place: Path, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(place), kind]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "held\n"
    return made


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_second_is_told_and_a_dead_run_s_lock_is_taken_over(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "out"
    with holder(place, kind) as process:
        with pytest.raises(OutputError) as e, alone(place, "--out out", folder=kind == "folder"):
            pass
        assert f"--out out is in use by another run (process {process.pid} on " in str(e.value)
        with alone(tmp_path / "other", "other", folder=kind == "folder"):
            pass  # another place is free
        process.kill()
        process.wait()
    with alone(place, "--out out", folder=kind == "folder"):
        assert [p.name for p in tmp_path.rglob("*") if p.is_file()] != []
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path: Path) -> None:
    with alone(tmp_path / "a" / "b", "work", folder=True):
        pass
    assert not (tmp_path / "a" / "b").exists()
    with alone(tmp_path / "c", "work", folder=True):
        (tmp_path / "c" / "kept").touch()
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["kept"]


def test_links_lead_to_one_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with (
        alone(tmp_path / "real", "real", folder=True),
        pytest.raises(OutputError, match=rf"link is in use .*process {os.getpid()} "),
        alone(tmp_path / "link", "link", folder=True),
    ):
        pass


def test_an_error_inside_frees_the_place(tmp_path: Path) -> None:
    with pytest.raises(KeyError), alone(tmp_path / "f", "f"):
        raise KeyError
    with alone(tmp_path / "f", "f"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["ftruncate", "write"])
def test_a_full_disk_locks_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, call, full)
        with (
            alone(tmp_path / "f", "--out f"),
            pytest.raises(OutputError, match="f is in use by another run"),
            alone(tmp_path / "f", "--out f"),
        ):
            pass
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_the_lock_is_signed_frees_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as keys:
        keys.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt), alone(tmp_path / "f", "f"):
            pass
    assert list(tmp_path.iterdir()) == []
    with alone(tmp_path / "f", "f"):
        pass


def test_two_quantizations_with_one_work(tmp_path: Path) -> None:
    net, x = torch.nn.Linear(3, 2), torch.zeros(4, 3)
    with alone(tmp_path / "work", "work", folder=True), pytest.raises(OutputError, match="of work is in use"):
        ptq4snn.quantize(net, x, work=tmp_path / "work")
    with pytest.raises(UnsupportedModel):  # it has no neurons: the folder was free
        ptq4snn.quantize(net, x, work=tmp_path / "work")
    assert list(tmp_path.iterdir()) == []

"""What killed writers leave behind: the next write removes it, and nothing else, never a living writer's."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ptq4snn import drafts
from ptq4snn.drafts import draft_folder, new_draft, sweep
from ptq4snn.files import write_together, write_whole

FULL = os.environ.get("PTQ4SNN_FULL") == "1"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL and locks that end with it")

SIZE = 300_000
WRITER = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from pathlib import Path
from ptq4snn.drafts import draft_folder
from ptq4snn.files import write_together
folder = Path(sys.argv[1])
print("started", flush=True)
n = 0
while True:
    n = (n + 1) % 256
    write_together({{folder / name: iter([bytes([n]) * {SIZE // 3}] * 3) for name in "ab"}}, sync=n % 8 == 0)
    with draft_folder(folder) as inside:
        (inside / "part").write_bytes(b"x" * 1000)
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    """A process that writes and writes, and has begun to."""
    made = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "started\n"
    return made


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def kill_and_check(folder: Path, seconds: float) -> bool:
    """Kill a writer after a while; whether it left something that was then removed."""
    names_of_others = ("mine", ".mine.tmp", ".0123.ptq4snn.tmp", "0123456789abcdef.ptq4snn.tmp")
    mine = [folder / name for name in names_of_others]
    for path in mine:
        path.write_text("the user's")
    process = writer(folder)
    time.sleep(seconds)
    end(process)
    left = [p for p in folder.iterdir() if drafts.OURS.fullmatch(p.name)]
    write_whole(folder / "c", b"next")
    names = {p.name for p in folder.iterdir()}
    assert names <= {"a", "b", "c", *(p.name for p in mine)}
    assert all(path.read_text() == "the user's" for path in mine)
    for name in names & {"a", "b"}:
        content = (folder / name).read_bytes()
        assert len(content) == SIZE and content == content[:1] * SIZE
    return bool(left)


def test_a_killed_writer_leaves_whole_files_and_the_next_write_removes_its_drafts(tmp_path: Path) -> None:
    chance = random.Random(0)
    for _ in range(6):
        kill_and_check(tmp_path, chance.uniform(0, 0.1))


@pytest.mark.full
@pytest.mark.skipif(not FULL, reason="native sizes; set PTQ4SNN_FULL=1")
def test_hundreds_of_killed_writers(tmp_path: Path) -> None:
    chance = random.Random(1)
    left = sum(kill_and_check(tmp_path, chance.uniform(0, 0.2)) for _ in range(300))
    assert left > 30  # else the kills came at the wrong moments


def test_every_kind_of_a_dead_process_s_draft_is_removed(tmp_path: Path) -> None:
    for number, mode in enumerate((0o666, 0o444, 0o200)):
        path = tmp_path / f".{number:016x}.ptq4snn.tmp"
        path.touch()
        path.chmod(mode)
    folder = tmp_path / f".{15:016x}.ptq4snn.tmp"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").touch()
    (tmp_path / f".{16:016x}.ptq4snn.lock").touch()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_only_looks_like_a_draft_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    (tmp_path / f".{1:016x}.ptq4snn.tmp").symlink_to(target)
    os.mkfifo(tmp_path / f".{2:016x}.ptq4snn.tmp")
    before = sorted(tmp_path.iterdir())
    sweep(tmp_path)  # and the pipe is not waited for
    assert sorted(tmp_path.iterdir()) == before


def test_a_living_writer_s_drafts_stay(tmp_path: Path) -> None:
    draft = new_draft(tmp_path, 0o666, lambda _: None)
    with draft_folder(tmp_path) as folder:
        code = "import sys; from ptq4snn.files import write_whole; write_whole(sys.argv[1], 'x')"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=True)
        assert draft.path.exists() and folder.is_dir() and (tmp_path / "x").read_text() == "x"
    draft.discard()
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_writers_that_sweep_each_other_s_folder(tmp_path: Path) -> None:
    """A draft can be swept between its making and its lock; its writer then takes another."""
    stop, wrong = threading.Event(), []

    def write(name: str) -> None:
        try:
            for n in range(150):
                write_together({tmp_path / f"{name}{i}": bytes([n]) * 100 for i in range(2)})
        except OSError as why:
            wrong.append(why)

    def tidy() -> None:
        while not stop.is_set():
            sweep(tmp_path)

    others = [threading.Thread(target=tidy) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in (*others, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    assert wrong == [] and sorted(p.name for p in tmp_path.iterdir()) == ["a0", "a1", "b0", "b1"]


def test_without_locks_only_old_drafts_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "HAS_LOCKS", False)
    old, new = tmp_path / f".{1:016x}.ptq4snn.tmp", tmp_path / f".{2:016x}.ptq4snn.tmp"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 2 * drafts.OLD,) * 2)
    write_whole(tmp_path / "f", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([new.name, "f"])


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C until it ends: one that arrives inside a destructor is lost, by Python's own rules."""
    for _ in range(12):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
            break
        except subprocess.TimeoutExpired:
            continue
    assert process.poll() is not None and process.stdout is not None
    process.stdout.close()


def test_an_interrupted_writer_removes_its_own(tmp_path: Path) -> None:
    """Also where Ctrl-C comes between a file's making and the next instruction, or while it is removed."""
    chance = random.Random(2)
    for i in range(300 if FULL else 8):
        folder = tmp_path / str(i)
        folder.mkdir()
        process = writer(folder)
        time.sleep(chance.uniform(0, 0.1))
        interrupt(process)
        assert {p.name for p in folder.iterdir()} <= {"a", "b"}

"""Full and read-only disks, folders that vanish: one sentence, code 2, nothing half-written."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.nursery import Nursery
from faults.places import new_place

COMMANDS = {
    "quantize --out": "quantize --model net:net --data x.npy --recipe fast+w4m4 --out {}/model.ptq",
    "quantize --work": "quantize --model net:net --data x.npy --recipe w4m4 --work {}/work --out model.ptq",
    "compare": "compare net:net --data xy.npz --methods gptq+w4m32 fast+w4m4 --calibration 48 --out {}/runs",
    "train": "train small.toml --data xy.npz --test xy.npz --out {}/run",
}


WRITERS = {  # of a bundle that is there
    "export --to nir": "export m.ptq --to nir --out {}/m.nir",
    "export --to onnx": "export m.ptq --to onnx --out {}/m.onnx",
    "export --to c": "export m.ptq --to c --out {}/firmware",
    "report": "report m.ptq --out {}/page.html",
    "run": "run m.ptq x.npy --out {}/y.npy",
}


def can_mount(folder: Path) -> bool:
    try:
        with mounted(folder / "probe", "size=64k"):
            return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@pytest.fixture
def mount(tmp_path: Path) -> Callable[[str], object]:
    if not can_mount(tmp_path):
        pytest.skip("only root may mount a small file system")
    return lambda options: mounted(tmp_path / "disk", options)


def last_line(place: Path) -> str:
    return (place / "log").read_text().strip().splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_fills_up(
    nursery: Nursery, command: str, tmp_path: Path, mount: Callable[[str], object]
) -> None:
    place = new_place(tmp_path / "place")
    with mount("size=8k") as disk:  # type: ignore[attr-defined]
        (disk / "mine").write_bytes(b"x" * 4096)
        assert nursery.run(place, COMMANDS[command].format(disk).split()) == 2
        found = last_line(place)
        assert found.startswith("ptq4snn: error: ") and "space left" in found, found
        for path in disk.rglob("*.json"):  # runs that were finished before
            json.loads(path.read_text())
        assert not list(disk.rglob("*.ptq")) + list(disk.rglob("*.safetensors"))
        assert (disk / "mine").read_bytes() == b"x" * 4096
        assert not list(disk.rglob("*.tmp"))
    assert not (place / "model.ptq").exists()


@pytest.fixture(scope="module")
def with_bundle(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = new_place(tmp_path_factory.mktemp("bundle") / "place")
    made = "quantize --model net:net --data x.npy --recipe fast+w4m4 --out m.ptq"
    assert nursery.run(place, made.split()) == 0
    return place


@pytest.mark.parametrize("command", WRITERS)
def test_a_disk_that_fills_up_while_a_bundle_becomes_something_else(
    nursery: Nursery, command: str, with_bundle: Path, mount: Callable[[str], object]
) -> None:
    if command.endswith(("nir", "onnx")):
        pytest.importorskip(command.split()[-1])
    with mount("size=8k") as disk:  # type: ignore[attr-defined]
        (disk / "mine").write_bytes(b"x" * 8192)
        assert nursery.run(with_bundle, WRITERS[command].format(disk).split()) == 2
        found = last_line(with_bundle)
        assert found.startswith("ptq4snn: error: ") and "space left" in found, found
        assert [p.name for p in disk.rglob("*") if p.is_file()] == ["mine"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_cannot_be_written(
    nursery: Nursery, command: str, tmp_path: Path, mount: Callable[[str], object]
) -> None:
    place = new_place(tmp_path / "place")
    with mount("size=1m,ro") as disk:  # type: ignore[attr-defined]
        assert nursery.run(place, COMMANDS[command].format(disk).split()) == 2
        found = last_line(place)
        assert found.startswith("ptq4snn: error: ") and str(disk) in found, found
    assert not (place / "model.ptq").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_vanishes_while_it_is_used(nursery: Nursery, command: str, tmp_path: Path) -> None:
    """Made again, or told in one sentence; never a traceback."""
    place = new_place(tmp_path / "place")
    away = place / "away"
    away.mkdir()
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            shutil.rmtree(away, ignore_errors=True)
            time.sleep(0.01)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        code = nursery.run(place, COMMANDS[command].format(away).split())
    finally:
        stop.set()
        remover.join()
    assert code in (0, 2), (place / "log").read_text()
    if code == 2:
        assert last_line(place).startswith("ptq4snn: error: ")

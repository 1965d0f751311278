"""Drafts: files and folders that are not whole yet, under names that nobody else gives.

Whoever makes a draft holds a lock on it until it is in its place, and a lock ends with its process. Whoever
writes into the same folder later sweeps it: drafts that nobody holds are a dead process's and are removed,
and so are its locks (`ptq4snn.locks`). Nothing of another name is ever touched.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ptq4snn.locks import HAS_LOCKS, LOCK, is_named, lock

__all__ = ["Draft", "draft_folder", "new_draft", "sweep"]

DRAFT = ".ptq4snn.tmp"
OURS = re.compile(rf"\.[0-9a-f]{{16}}({re.escape(DRAFT)}|{re.escape(LOCK)})")
OLD = 86_400  # seconds: without locks, what nobody has changed for a day is a dead process's
BINARY = getattr(os, "O_BINARY", 0)


@dataclass
class Draft:
    """A new file, open for writing and locked."""

    path: Path
    number: int
    is_open: bool = True

    def write(self, parts: Iterable[bytes | bytearray], sync: bool) -> None:
        with os.fdopen(self.number, "wb", closefd=False) as file:
            file.writelines(parts)
            if sync:
                file.flush()
                os.fsync(self.number)
        if not HAS_LOCKS:
            self._close()  # Windows moves no open file

    def move(self, place: Path) -> None:
        self.path.replace(place)

    def discard(self) -> None:
        """Remove what was not moved, and let go."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.number)


def new_draft(folder: Path, mode: int) -> Draft:
    """A file of a new name; `mode` is less the umask."""
    while True:
        path = _new_name(folder)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
        if _hold(number, path):
            return Draft(path, number)
        os.close(number)


@contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """A new folder, removed in the end with all that is in it."""
    sweep(parent)
    while True:
        path = _new_name(parent)
        path.mkdir(mode=0o700)
        number = os.open(path, os.O_RDONLY) if HAS_LOCKS else None
        if number is None or _hold(number, path):
            break
        os.close(number)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if number is not None:
            os.close(number)


def sweep(folder: Path) -> None:
    """Remove what dead processes left in a folder."""
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found if OURS.fullmatch(entry.name)]
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # another was quicker, or it may not be removed
            _remove_dead(folder / name)


def _new_name(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}{DRAFT}"


def _hold(number: int, path: Path) -> bool:
    """Whether the draft is locked and still there: it may have been swept before it was locked."""
    with suppress(OSError):  # without locks nobody sweeps
        lock(number, wait=True)
    return is_named(number, path)


def _remove_dead(path: Path) -> None:
    found = path.lstat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return  # not ours
    if not HAS_LOCKS:
        if time.time() - found.st_mtime > OLD:
            _remove(path, found)
        return
    number = _open(path)
    try:
        if lock(number, wait=False) and is_named(number, path):
            _remove(path, found)
    finally:
        os.close(number)


def _open(path: Path) -> int:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDONLY | flags)
    except PermissionError:  # a mode without reading
        return os.open(path, os.O_WRONLY | flags)


def _remove(path: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()

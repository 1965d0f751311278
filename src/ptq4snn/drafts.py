"""Drafts: files and folders that are not whole yet, under names that nobody else gives.

Whoever makes a draft holds a lock on it until it is in its place, and a lock ends with its process. Whoever
writes into the same folder later sweeps it: drafts that nobody holds are a dead process's and are removed,
and so are its locks (`ptq4snn.locks`). Nothing of another name is ever touched.

Ctrl-C may come between any two instructions, also while a draft is being removed: names stand in a list
before anything has them and until nothing has, and what is in it when the process ends is removed then.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ptq4snn.locks import HAS_LOCKS, LOCK, is_named, lock

__all__ = ["Draft", "draft_folder", "new_draft", "sweep"]

DRAFT = ".ptq4snn.tmp"
OURS = re.compile(rf"\.[0-9a-f]{{16}}({re.escape(DRAFT)}|{re.escape(LOCK)})")
OLD = 86_400  # seconds: without locks, what nobody has changed for a day is a dead process's
BINARY = getattr(os, "O_BINARY", 0)

_unfinished: dict[Path, int] = {}  # a draft, and the process that makes it: a forked child leaves it alone


@dataclass
class Draft:
    """A file of a new name, once it is made open for writing and locked. Its owner knows of it before it is
    there."""

    path: Path
    number: int | None = None  # of the open file

    def make(self, mode: int) -> bool:
        """Whether it is there and locked: it may have been swept in between. `mode` is less the umask."""
        self.number = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
        return _hold(self.number, self.path)

    def write(self, parts: Iterable[bytes | bytearray], sync: bool) -> None:
        assert self.number is not None
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
        _unfinished.pop(self.path, None)
        self._close()

    def _close(self) -> None:
        number, self.number = self.number, None
        if number is not None:
            os.close(number)


def new_draft(folder: Path, mode: int, note: Callable[[Draft], None]) -> Draft:
    """A file of a new name; `note` is told of every one that is tried, and discards it in the end."""
    while True:
        draft = Draft(_new_name(folder))
        note(draft)
        if draft.make(mode):
            return draft
        draft.discard()


@contextmanager
def draft_folder(parent: Path) -> Iterator[Path]:
    """A new folder, removed in the end with all that is in it."""
    sweep(parent)
    path, number = _new_name(parent), None
    try:
        path.mkdir(mode=0o700)
        while HAS_LOCKS:
            number = os.open(path, os.O_RDONLY)
            if _hold(number, path):
                break
            swept, number = number, None
            os.close(swept)
            _unfinished.pop(path, None)
            path = _new_name(parent)
            path.mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _unfinished.pop(path, None)
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


@atexit.register
def _remove_unfinished() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more Ctrl-C could not end it any sooner
    for path, process in list(_unfinished.items()):
        if process == os.getpid():
            with suppress(OSError):
                _remove(path, path.lstat())


def _new_name(folder: Path) -> Path:
    path = folder / f".{secrets.token_hex(8)}{DRAFT}"
    _unfinished[path] = os.getpid()
    return path


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

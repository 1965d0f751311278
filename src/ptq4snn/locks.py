"""Advisory locks on files: a lock ends with the process that holds it, however that ends.

`alone` lets one run at a time into a place. Its lock is a file of a reserved name; whoever finds one that
nobody holds takes it over. A lock is valid only while its file still has its name: whoever gets one looks
again, for another may have removed the file in between.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ptq4snn.errors import OutputError

if sys.platform != "win32":
    import fcntl

__all__ = ["HAS_LOCKS", "LOCK", "alone", "is_named", "lock"]

HAS_LOCKS = sys.platform != "win32"
LOCK = ".ptq4snn.lock"  # how the names of lock files end
PATIENCE = 1.0  # seconds: whoever sweeps holds a dead run's lock for a moment
ANYBODY = 0o666  # less the umask
SHOWN = 200  # bytes of a lock file that are read


def lock(number: int, wait: bool) -> bool:
    """Lock an open file or folder; False where another holds it. OSError: this file system has no locks."""
    if sys.platform != "win32":
        try:
            fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
    return True


def is_named(number: int, path: Path) -> bool:
    """Whether the open file still is what `path` names."""
    try:
        return os.path.samestat(os.fstat(number), path.lstat())
    except OSError:
        return False


@contextmanager
def alone(place: str | Path, what: str, folder: bool = False) -> Iterator[None]:
    """Be the only run that writes to a file, or into a folder; or say, in one sentence, who is.

    `what` names the place as the user did, such as "--out model.ptq". A folder is made where there is none,
    and taken away again where nothing was put into it.
    """
    path = Path(place).resolve()
    home, name = (path, "") if folder else (path.parent, path.name)
    made = folder and not home.exists()
    if folder:
        with suppress(OSError):  # said, in its own words, by whoever writes into it
            home.mkdir(parents=True, exist_ok=True)
    if not home.is_dir() or not os.access(home, os.W_OK):
        yield
        return
    held = home / f".{hashlib.sha256(name.encode()).hexdigest()[:16]}{LOCK}"
    number = _take(held, what)
    try:
        yield
    finally:
        _leave(number, held)
        if made:
            with suppress(OSError):
                home.rmdir()  # only if it is empty


def _take(held: Path, what: str) -> int:
    """Open and lock the file; a dead run's is taken over."""
    end = time.monotonic() + PATIENCE
    while True:
        number = _open(held)
        if number is not None:
            if _is_mine(number) and is_named(number, held):
                _sign(number, held)
                return number
            os.close(number)
        if time.monotonic() > end:
            raise OutputError(
                f"{what} is in use by another run{_owner(held)}: wait until it has ended, or name another"
            )
        time.sleep(PATIENCE / 20)


def _sign(number: int, held: Path) -> None:
    """Write who holds it, for others to read; a disk that has no room for it locks as well."""
    try:
        with suppress(OSError):
            os.ftruncate(number, 0)
            os.write(number, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BaseException:  # Ctrl-C, before anybody knows that the lock must be left
        _leave(number, held)
        raise


def _is_mine(number: int) -> bool:
    try:
        return lock(number, wait=False)
    except OSError:  # without locks nobody can be told
        return True


def _open(held: Path) -> int | None:
    """The lock file, open; None where Windows knows, before any lock, that a living run has it open."""
    if HAS_LOCKS:
        return os.open(held, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, ANYBODY)
    try:  # a file that is open elsewhere cannot be removed there
        held.unlink(missing_ok=True)
        return os.open(held, os.O_RDWR | os.O_CREAT | os.O_EXCL, ANYBODY)
    except (PermissionError, FileExistsError):
        return None


def _leave(number: int, held: Path) -> None:
    """Remove the file while it is locked, so that nobody else's is; on Windows it must be closed before."""
    if not HAS_LOCKS:
        os.close(number)
    with suppress(OSError):
        held.unlink()
    if HAS_LOCKS:
        os.close(number)


def _owner(held: Path) -> str:
    try:
        with held.open("rb") as file:
            words = file.read(SHOWN).decode("utf-8", "replace")
    except OSError:
        return ""
    return f" ({words})" if words.isprintable() and words else ""

"""Files that are written whole or not at all.

The content goes into a file of a random name beside its place, made with O_EXCL, and is then moved: a full
disk or a kill leaves what was there, and the next write into the folder removes what a killed process left
(`ptq4snn.drafts`). Links are followed, so that the link stays; the mode stays, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from ptq4snn.drafts import Draft, new_draft, sweep
from ptq4snn.errors import OutputError

__all__ = ["Content", "check_target", "is_file", "short", "write_together", "write_whole"]

Content = bytes | bytearray | str | Iterable[bytes | bytearray]
KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}
RIGHTS = 0o777
SHOWN = 120  # characters of a name in a message


def short(text: object) -> str:
    """A name as it is shown in a message: what is too long is cut in the middle."""
    name = str(text)
    return name if len(name) <= SHOWN else f"{name[: SHOWN // 2]}...{name[-SHOWN // 2 :]}"


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that cannot be (too long, a zero byte) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_target(path: str | Path, option: str = "") -> Path:
    """The regular file that a write to `path` makes or replaces, links followed; said before any work.

    A folder, a device, a pipe or a socket is refused: none of them can be replaced by a file. `option` is the
    option of the command line that names the file.
    """
    name = f"{option} {short(path)}" if option else short(path)
    try:
        found = _status(Path(path))
        place = Path(path).resolve()
        folder = place.parent if Path(path).is_symlink() else Path(path).parent
        parent = _status(folder)
    except (OSError, RuntimeError, ValueError) as why:  # too long, a loop of links, a zero byte in the name
        reason = (why.strerror or str(why)) if isinstance(why, OSError) else str(why)
        raise OutputError(f"{name} cannot be written ({short(reason)}): name another file") from why
    kind = None if found is None else KINDS.get(stat.S_IFMT(found.st_mode))
    if kind is not None:
        raise OutputError(f"{name} is a {kind}: name a file")
    if parent is None or not stat.S_ISDIR(parent.st_mode):
        raise OutputError(f"{name}: there is no folder {short(folder)}")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{name}: the folder {short(folder)} cannot be written to")
    return place


def write_whole(path: str | Path, content: Content, sync: bool = False) -> None:
    """Write one file; with `sync` it is on the disk before it takes its place."""
    write_together({Path(path): content}, sync)


def write_together(contents: Mapping[Path, Content], sync: bool = False) -> None:
    """Write several files, and move them to their places, in this order, when all are written."""
    places = {path: check_target(path) for path in contents}
    for folder in dict.fromkeys(place.parent for place in places.values()):
        sweep(folder)
    tried: list[Draft] = []
    drafts: list[tuple[Draft, Path]] = []
    path = Path()
    try:
        for path, content in contents.items():
            found = _status(places[path])
            mode = 0o666 if found is None else stat.S_IMODE(found.st_mode) & RIGHTS
            draft = new_draft(places[path].parent, mode, tried.append)
            drafts.append((draft, places[path]))
            if found is not None:
                draft.path.chmod(mode)  # the umask is for new files
            draft.write(_parts(content), sync)
        for draft, place in drafts:
            path = place
            draft.move(place)
    except OSError as why:
        raise OSError(why.errno, why.strerror or str(why), str(path)) from why  # not the draft's name
    finally:
        for draft in tried:
            draft.discard()


def _parts(content: Content) -> Iterable[bytes | bytearray]:
    if isinstance(content, str):
        return (content.encode(),)
    return (content,) if isinstance(content, bytes | bytearray) else content


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None

"""Writers: whole or not at all, regular files only, links and modes kept, names that cannot be guessed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from ptq4snn.errors import OutputError
from ptq4snn.files import check_target, short, write_together, write_whole

unix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and modes of Unix")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_writes_text_bytes_and_parts(tmp_path: Path) -> None:
    for content in ("ab", b"ab", bytearray(b"ab"), [b"a", b"b"], iter([b"a", b"b"])):
        write_whole(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == b"ab"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@unix
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_what_is_no_file_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            here = Path.cwd()
            os.chdir(tmp_path)  # names of sockets are short
            s.bind("f")
            os.chdir(here)
    else:
        path.mkdir()
    before = path.stat().st_mode
    link = tmp_path / "link"
    link.symlink_to(path)
    for place in (path, link):
        with pytest.raises(OutputError, match=f"is a {kind}: name a file"):
            write_whole(place, "x")
    assert path.stat().st_mode == before and link.is_symlink()


@unix
def test_a_device_is_refused(tmp_path: Path) -> None:
    for place in ("/dev/null", "/dev/fd/1"):
        if stat.S_ISREG(Path(place).stat().st_mode):
            continue  # the output of this test goes to a file
        with pytest.raises(OutputError, match=r"is a (device|pipe|socket): name a file"):
            check_target(place, "--out")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@unix
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, target = tmp_path / "link", tmp_path / "real" / "file"
    link.symlink_to(target)
    for content in ("new", "newer"):  # the target is not there yet, and then it is
        write_whole(link, content)
        assert link.is_symlink() and target.read_text() == content and not target.is_symlink()
    assert [p.name for p in target.parent.iterdir()] == ["file"]


@unix
def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OutputError, match="cannot be written"):
        write_whole(loop, "x")
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "no" / "file")
    with pytest.raises(OutputError, match="there is no folder"):
        write_whole(astray, "x")


@unix
def test_the_mode_of_what_was_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_whole(path, "old")
    umask = os.umask(0)
    os.umask(umask)
    assert mode(path) == 0o666 & ~umask
    for wanted in (0o600, 0o640, 0o666, 0o444):
        path.chmod(wanted)
        write_whole(path, "new")
        assert mode(path) == wanted


def test_drafts_have_new_names_and_are_made_exclusively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    real = os.open

    def watched(path: Path, flags: int, *rest: int) -> int:
        seen.append((Path(path).name, flags))
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", watched)
    for _ in range(3):
        write_whole(tmp_path / "f", "x")
    assert len({name for name, _ in seen}) == 3 and all(flags & os.O_EXCL for _, flags in seen)
    assert all(str(os.getpid()) not in name and "f." not in name[:3] for name, _ in seen)


def test_several_are_written_before_one_is_moved(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write_together({a: "old", b: "old"})

    def parts() -> object:
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space.*/b'"):
        write_together({a: "new", b: parts()})  # type: ignore[dict-item]
    assert a.read_text() == b.read_text() == "old" and sorted(tmp_path.iterdir()) == [a, b]


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "f", "a\0b"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError) as e:
        check_target(tmp_path / name, "--out")
    assert len(str(e.value)) < 400 and "\n" not in str(e.value)


def test_long_names_are_cut(tmp_path: Path) -> None:
    assert short("abc") == "abc" and len(short("x" * 10_000)) < 130

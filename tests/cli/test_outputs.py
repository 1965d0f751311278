"""Where commands write: what is no file is refused before any work and stays, links and modes are kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.bundles import Made, make

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.runtime import load

Cli = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and modes of Unix")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("still"), still=True)


def commands(made: Made, out: Path) -> dict[str, list[str]]:
    bundle, x = str(made.bundle), str(made.input)
    return {
        "run": ["run", bundle, x, "-o", str(out)],
        "run, its state": ["run", bundle, x, "--stream", "--save-state", str(out)],
        "report": ["report", bundle, "--out", str(out)],
        "figure": ["figure", "memory", bundle, "--out", str(out)],
        "compare": ["compare", "--methods", "w4m4", "--csv", str(out)],
        "quantize": ["quantize", "--out", str(out)],
    }


ENDINGS = {"report": ".html", "figure": ".json"}
COMMANDS = ["run", "run, its state", "report", "figure", "compare", "quantize"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_is_refused_before_any_work_and_stays(name: str, made: Made, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / f"out{ENDINGS.get(name, '')}"
    os.mkfifo(out)
    code, text, err = cli(*commands(made, out)[name])
    assert (code, text) == (2, "") and f"{out} is a pipe: name a file" in err and err.count("\n") == 1
    assert stat.S_ISFIFO(out.stat().st_mode) and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["run", "run, its state", "report", "figure"])
def test_links_and_modes_are_kept(name: str, made: Made, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    ending = ENDINGS.get(name, "")
    link, target = tmp_path / f"link{ending}", tmp_path / "real" / f"file{ending}"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    code, _, err = cli(*commands(made, link)[name])
    assert code == 0, err
    assert link.is_symlink() and target.read_bytes() != b"old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [p.name for p in target.parent.iterdir()] == [target.name]


def test_quantize_keeps_links_and_modes_of_all_its_files(api: Any, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    names = ["m.ptq", "m.ptq.report.json"]
    for i, name in enumerate(names):
        (tmp_path / "real" / name).write_text("old")
        (tmp_path / "real" / name).chmod(0o600 + 8 * i)
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    assert cli("quantize", "--out", "m.ptq")[0] == 0
    for i, name in enumerate(names):
        file = tmp_path / "real" / name
        assert (tmp_path / name).is_symlink() and file.read_bytes() != b"old"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 + 8 * i
    assert sorted(p.name for p in tmp_path.iterdir()) == [*names, "real"]


def test_a_report_that_cannot_be_written_is_told_before_the_work(api: Any, cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.ptq.report.json")
    code, _, err = cli("quantize")
    assert code == 2 and "model.ptq.report.json is a pipe" in err and api.quantize == {}


def test_the_api_refuses_them_too(made: Made, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    rt = load(made.bundle)
    rt.step(made.x)
    assert rt.state is not None
    with pytest.raises(PTQ4SNNError, match="is a pipe: name a file"):
        rt.state.save(tmp_path / "pipe")
    os.mkfifo(tmp_path / "m.ptq.report.html")
    with pytest.raises(PTQ4SNNError, match="html is a pipe: name a file"):
        made.q.save(tmp_path / "m.ptq", page=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.ptq.report.html", "pipe"]
    made.q.save(tmp_path / "m.ptq")  # without a page it is nobody's target, and stays
    written = ["m.ptq", "m.ptq.report.html", "m.ptq.report.json", "pipe"]
    assert sorted(p.name for p in tmp_path.iterdir()) == written

"""Every command and public name without torch, without rich, without Jinja2: plain text, or one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.bundles import SRC, Made, make, without

from ptq4snn import extras
from ptq4snn.errors import MissingExtra, PTQ4SNNError
from ptq4snn.report import terminal

ROOT = Path(__file__).parents[2]
TORCH = 'needs torch: pip install "ptq4snn[torch]"'
NOTHING = "torch,rich,jinja2,PIL,vl_convert"
# every command: its arguments, and the package without which it is refused
COMMANDS = {
    "quantize": (["--model", "default"], "torch"),
    "inspect": ([], "torch"),
    "evaluate": (["m.ptq"], "torch"),
    "run": (["m.ptq", "x.npy", "--stream"], None),
    "bench": (["m.ptq", "--batch", "1", "--kernels", "numpy"], None),
    "export": (["m.ptq", "--to", "c", "--out", "sources"], None),
    "check": (["m.ptq", "--target", "spinnaker2"], None),
    "summary": (["m.ptq"], None),
    "report": (["m.ptq", "--figures", "drawn"], "jinja2"),
    "figure": (["memory", "m.ptq", "--out", "f.json"], None),
    "compare": (["--methods", "w4m4"], "torch"),
    "experiment": (["figure1"], "torch"),
    "models": ([], "torch"),
    "train": (["default", "--data", "cifar10:x"], "torch"),
    "demo": ([], "torch"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("extras")
    found = make(folder, still=True)
    for end in ("", ".report.json", ".report.html"):
        (folder / f"model.ptq{end}").rename(folder / f"m.ptq{end}")
    return found


def test_the_table_names_every_command() -> None:
    listed = (ROOT / "src/ptq4snn/cli/options.py").read_text()
    assert set(COMMANDS) == set(re.findall(r'\("(\w+)", \w+_options,', listed))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_with_none_of_the_extras(command: str, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.bundle.parent)
    arguments, needed = COMMANDS[command]
    if command == "experiment":
        arguments = [re.split(r"\s", without(NOTHING, "experiment").stdout)[0]]  # they are listed without
    before = set(Path.cwd().iterdir())
    done = without(NOTHING, command, *arguments)
    if needed is None:
        assert done.returncode == 0, done.stderr
        return
    name, extra = extras.EXTRAS[needed]
    assert done.returncode == 2 and done.stdout == ""
    said = done.stderr.replace("ptq4snn.models ", "ptq4snn models ")  # the package, or the command
    assert said == f'ptq4snn: error: ptq4snn {command} needs {name}: pip install "ptq4snn[{extra}]"\n'
    assert set(Path.cwd().iterdir()) == before, "nothing half-written"


PUBLIC = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if (root := name.partition(".")[0]) in ("torch", "rich", "jinja2"):
            raise ModuleNotFoundError(name, name=root)
sys.meta_path.insert(0, Blocker())
import importlib
import ptq4snn
from ptq4snn.errors import MissingExtra
for name in (*ptq4snn.__all__, "models.zoo", "models.neuron", "frameworks", "experiments.compare"):
    try:
        value = getattr(ptq4snn, name) if "." not in name and name != "frameworks" \
            else importlib.import_module(f"ptq4snn.{name}")
    except MissingExtra as why:
        assert isinstance(why, ImportError) and why.name == "torch", name
        print(name, "|", why)
    else:
        print(name, "|", "is there")
"""


def test_public_names_without_torch() -> None:
    env = {**os.environ, "PYTHONPATH": SRC}
    done = subprocess.run(
        [sys.executable, "-c", PUBLIC], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" | ") for line in done.stdout.splitlines())
    here = {name for name, text in told.items() if text == "is there"}
    assert here == {"Recipe", "__version__", "export", "runtime"}
    parts = {"models.zoo": "models", "models.neuron": "models"}
    for name in set(told) - here:
        assert told[name] == f"ptq4snn.{parts.get(name, name)} {TORCH}"


def test_only_what_is_an_extra_is_explained() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extras.needed_by("it"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(PTQ4SNNError, match=r"^it needs rich: .*, or not$"), extras.needed_by("it", "or not"):
        raise ModuleNotFoundError("No module named 'rich'", name="rich")
    with pytest.raises(ModuleNotFoundError), extras.needed_by("it"):  # a torch that lacks a part of itself
        raise ModuleNotFoundError("No module named 'torch.x'", name="torch.x")


def test_every_extra_is_one_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for module, (name, extra) in extras.EXTRAS.items():
        if module == "h5py":  # which nir brings
            continue
        (brings,) = re.findall(rf'^{extra} = \["([\w-]+)>=', text, re.MULTILINE)
        assert brings.lower().startswith(name.lower())
        assert re.search(rf'^all = \["ptq4snn\[.*\b{extra}\b.*\]"\]', text, re.MULTILINE)


def test_a_terminal_without_rich_gets_plain_text(
    made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptq4snn import progress
    from ptq4snn.cli import bench, demo, models
    from ptq4snn.cli.demo_rows import NETWORKS
    from ptq4snn.models.zoo import MODELS

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in [n for n in sys.modules if n.partition(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert not extras.is_there("rich")
    assert isinstance(progress.for_terminal(), progress.Silent)
    terminal.show(made.q.report)
    bench.show("speed", ["layer", "ms"], [["conv", "3"]])
    study = SimpleNamespace(network=NETWORKS[0], samples=1, calibration=[], rows=lambda _: iter(()))
    assert demo.shown(study, ()) == []  # type: ignore[arg-type]
    models.run(Namespace(name=None, json=False))
    out = capsys.readouterr().out
    assert "\x1b" not in out and "conv" in out and "accuracy %" in out
    assert all(name in out for name in MODELS)


def test_only_a_page_needs_jinja2(tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for end in ("", ".report.html"):
        (tmp_path / f"m.ptq{end}").write_text("of a bundle before")
    with pytest.raises(MissingExtra, match=r'^a page needs Jinja2: pip install "ptq4snn\[report\]"$'):
        made.q.save(tmp_path / "m.ptq", page=True)
    assert {f.read_text() for f in tmp_path.iterdir()} == {"of a bundle before"}, "nothing half-written"
    made.q.save(tmp_path / "m.ptq")
    assert {f.name for f in tmp_path.iterdir()} == {"m.ptq", "m.ptq.report.json"}
    assert (tmp_path / "m.ptq").read_bytes() == (made.bundle.parent / "m.ptq").read_bytes()


def test_the_command_line_leaves_no_page_of_another_bundle(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ptq4snn.cli.quantize import save

    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / "m.ptq.report.html").write_text("of a bundle before")
    with pytest.warns(UserWarning, match=r'm\.ptq\.report\.html is left out: .*"ptq4snn\[report\]"'):
        written = save(made.q, tmp_path / "m.ptq")
    assert set(written) == set(tmp_path.iterdir()) and len(written) == 2


def test_results_are_recorded_without_a_page(
    made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptq4snn.cli import main

    monkeypatch.chdir(made.bundle.parent)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["evaluate", "m.ptq", "--data", "x.npy"]) == 0
    out, err = capsys.readouterr()
    assert "recorded in m.ptq.report.json\n" in out
    assert err == (
        "ptq4snn: warning: m.ptq.report.html was not made anew: a page needs Jinja2: "
        'pip install "ptq4snn[report]"\n'
    )


def test_models_whose_weights_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the wheel: only the networks of the demo have their weights."""
    from ptq4snn.cli import main
    from ptq4snn.models import entry

    monkeypatch.setattr(entry, "WEIGHTS", tmp_path / "weights")
    file = "weights/noncommercial/sdt-fpn-16-camvid.safetensors of the source repository"
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "trained weights of sew-resnet10-48-cifar10, " in out and " 89.40\n" in out and " 94.00\n" in out
    assert main(["models", "sdt-fpn-16-camvid"]) == 0
    assert f"not in this installation: take {file}" in capsys.readouterr().out
    assert main(["quantize", "--model", "sdt-fpn-16-camvid", "--data", "camvid:x.npz"]) == 2
    err = capsys.readouterr().err
    assert f"are not installed: take {file} and give --checkpoint FILE" in err and err.count("\n") == 1

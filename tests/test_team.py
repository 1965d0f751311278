"""Processes that share a run: the same bits as one alone, for any number of them, and one end for all."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from faults.places import new_place
from faults.torchrun import torchrun
from safetensors.torch import load_file

from ptq4snn.cli import main
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.team import SOLO, Team

QUANTIZE = "quantize --model net:net --data x.npy --calibration 90 --out {}.ptq --work {}.work --recipe"
RECIPES = {  # of every way to share something
    "default": "w4m4",
    "narrow": "w2m2",
    "paper": "paper+gptq+w4m4",
    "brecq": "brecq+w4m4",
    "distil": "distil+w2m2",
}
DEADLY = """
from net import *
import os, time

class Odd(Net):
    def forward(self, x):
        if os.environ.get("RANK") == "1" and len(x) > 2:
            {}
        return super().forward(x)

def odd(): return Odd().eval()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_place(tmp_path_factory.mktemp("team") / "place")


def content(place: Path, name: str) -> bytes:
    return (place / f"{name}.ptq").read_bytes()


@pytest.fixture
def alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, where this process can find the model."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    return place


FULL = [pytest.mark.full, pytest.mark.skipif(os.environ.get("PTQ4SNN_FULL") != "1", reason="PTQ4SNN_FULL=1")]
SHARED = [
    ("default", (3,)),
    ("brecq", (2,)),
    *(pytest.param(recipe, (2, 3), marks=FULL) for recipe in RECIPES),
]


@pytest.mark.parametrize(("recipe", "counts"), SHARED)
def test_two_and_three_processes_write_the_bytes_of_one(
    alone: Path, recipe: str, counts: tuple[int, ...]
) -> None:
    """90 samples make five micro-batches and ten samples more: the shares are uneven."""
    words = [RECIPES[recipe], "--iterations", "30"]
    assert main([*QUANTIZE.format(recipe, recipe).split(), *words]) == 0
    for processes in counts:
        name = f"{recipe}{processes}"
        ran = torchrun(alone, processes, [*QUANTIZE.format(name, name).split(), *words])
        assert ran.returncode == 0, ran.stderr
        assert content(alone, name) == content(alone, recipe)
        assert ran.stdout.count(f"{processes} processes shared the work") == 1  # one of them speaks
        assert ran.stdout.count("wrote ") == 3


def test_scores_and_tables_are_those_of_one_process(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = (
        "compare net:net --data xy.npz --methods gptq+w4m32 w4m2 --calibration 48 --batch-size 7 --json --out"
    )
    assert main([*table.split(), "one"]) == 0
    one = json.loads(capsys.readouterr().out)
    ran = torchrun(alone, 2, [*table.split(), "two"])
    assert ran.returncode == 0, ran.stderr
    two = json.loads(ran.stdout)
    for data in (one, two):
        for run in data["runs"]:
            del run["seconds"]
    assert one == two
    again = torchrun(alone, 2, [*table.split(), "one"])  # what one process has stored
    assert again.stderr.count("stored") == 3


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("os._exit(7)", "another of the 2 processes has died"),
        ("time.sleep(1000)", "did not answer for 8 s"),
    ],
)
def test_a_process_that_dies_or_hangs_ends_all(tmp_path: Path, what: str, found: str) -> None:
    place = new_place(tmp_path / "place")
    (place / "odd.py").write_text(DEADLY.format(what))
    words = QUANTIZE.format("m", "m").replace("net:net", "odd:odd").split()
    ran = torchrun(place, 2, [*words, "w4m4"], PTQ4SNN_TIMEOUT="8")
    assert ran.returncode != 0
    assert re.search(f"ptq4snn: error: .*{found}", ran.stderr) or "exitcode  : 7" in ran.stderr
    assert not (place / "m.ptq").exists()
    (place / "odd.py").write_text(DEADLY.format("pass"))
    again = torchrun(place, 2, [*words, "w4m4"])  # goes on from --work
    assert again.returncode == 0, again.stderr


def test_training_gives_the_weights_of_one_process(alone: Path) -> None:
    """The recipe says how many parts a batch has; how many processes share them does not matter."""
    text = (alone / "small.toml").read_text()
    (alone / "parts.toml").write_text(text.replace("batch_size = 8", "batch_size = 9\nparts = 3"))
    words = ["train", "parts.toml", "--data", "xy.npz", "--test", "xy.npz", "--threads", "1", "--out"]
    assert main([*words, "one"]) == 0
    ran = torchrun(alone, 2, [*words, "two"])
    assert ran.returncode == 0, ran.stderr
    tensors = [load_file(alone / name / "net.trained.safetensors") for name in ("one", "two")]
    assert all(torch.equal(tensors[0][n], tensors[1][n]) for n in tensors[0])
    refused = torchrun(alone, 2, ["train", "small.toml", *words[2:], "three"])
    assert "set parts in the recipe to 2 or more" in refused.stderr


def test_an_error_is_told_once(place: Path) -> None:
    ran = torchrun(place, 2, [*QUANTIZE.format("m", "m").replace("x.npy", "none.npy").split(), "w4m4"])
    assert ran.returncode != 0
    assert ran.stderr.count("ptq4snn: error: ") == 1


def test_alone_a_team_is_a_loop() -> None:
    assert SOLO.map(lambda x: x * 2, range(3), "numbers") == [0, 2, 4]
    assert SOLO.all(5, "numbers") == [5] and SOLO.told(lambda: 7, "numbers") == 7
    with pytest.raises(PTQ4SNNError, match="here"), SOLO.raised_in_all("errors"):
        raise PTQ4SNNError("here")


def test_pieces_are_dealt_out_whole() -> None:
    dealt = [dict(Team(rank, 3).deal("abcdefg")) for rank in range(3)]
    assert [sorted(d) for d in dealt] == [[0, 3, 6], [1, 4], [2, 5]]
    assert "".join({**dealt[0], **dealt[1], **dealt[2]}[i] for i in range(7)) == "abcdefg"

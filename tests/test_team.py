"""Processes that share a run: the same bits as one alone, for any number of them, and one end for all."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from faults.places import new_place
from faults.torchrun import torchrun
from safetensors.torch import load_file

from ptq4snn.cli import main
from ptq4snn.errors import DataError, PTQ4SNNError, TeamError, ToldElsewhere
from ptq4snn.last_words import LastWords
from ptq4snn.locks import alone as locked
from ptq4snn.team import SOLO, Team, from_environment

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
    calls = 0

    def forward(self, x):
        Odd.calls += len(x) > 2
        if os.environ.get("RANK") == "{rank}" and Odd.calls > {calls}:
            {what}
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


DIES, HANGS = "os._exit(7)", "time.sleep(1000)"


@pytest.mark.parametrize(
    ("rank", "calls", "what"),
    [
        (1, 0, DIES),
        (1, 0, HANGS),
        pytest.param(0, 0, DIES, marks=FULL),
        *(
            pytest.param(*case, marks=FULL)
            for case in ((0, 0, HANGS), *((rank, calls, DIES) for rank in (0, 1) for calls in (4, 8, 16)))
        ),
    ],
)
def test_a_process_that_dies_or_hangs_ends_all(tmp_path: Path, rank: int, calls: int, what: str) -> None:
    place = new_place(tmp_path / "place")
    (place / "odd.py").write_text(DEADLY.format(rank=rank, calls=calls, what=what))
    words = QUANTIZE.format("m", "m").replace("net:net", "odd:odd").split()
    ends(torchrun(place, 2, [*words, "brecq+w4m4", "--iterations", "9"], PTQ4SNN_TIMEOUT="8"), what)
    assert not (place / "m.ptq").exists()
    if rank == 0 or calls:
        return
    (place / "odd.py").write_text(DEADLY.format(rank=rank, calls=calls, what="pass"))
    again = torchrun(place, 2, [*words, "w4m4"])  # goes on from --work
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("rank", [pytest.param(rank, marks=FULL) for rank in (0, 1)])
def test_a_process_that_dies_while_it_evaluates_ends_all(tmp_path: Path, rank: int) -> None:
    place = new_place(tmp_path / "place")
    (place / "odd.py").write_text(DEADLY.format(rank=rank, calls=0, what=DIES))
    words = ["evaluate", "--float", "--model", "odd:odd", "--data", "xy.npz", "--batch-size", "7"]
    ends(torchrun(place, 2, words, PTQ4SNN_TIMEOUT="8"), DIES)


def ends(ran: subprocess.CompletedProcess[str], what: str) -> None:
    """One sentence, unless torchrun was faster than the process that would have said it."""
    assert ran.returncode != 0
    told = "another of the 2 processes has died" if what == DIES else "2 processes did not answer for 8 s"
    said = re.findall("ptq4snn: error: .*", ran.stderr)
    assert (len(said) == 1 and told in said[0]) or (said == [] and "exitcode  : 7" in ran.stderr), ran.stderr


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("quantize --model net:net --data none.npy", "none.npy", marks=FULL),
        ("quantize --model net:net --data x.npy --out held.ptq", "--out held.ptq is in use by another run"),
        pytest.param(
            "train small.toml --data xy.npz --out held", "--out held is in use by another run", marks=FULL
        ),
        ("quantize --model odd:odd --data x.npy", "process 1: the disk is odd"),
        ("evaluate none.ptq --data xy.npz", "there is no bundle none.ptq"),
    ],
)
def test_an_error_is_told_once(place: Path, words: str, said: str) -> None:
    (place / "odd.py").write_text(DEADLY.format(rank=1, calls=0, what='raise OSError("the disk is odd")'))
    with locked(place / "held.ptq", "held"), locked(place / "held", "held", folder=True):
        ran = torchrun(place, 2, words.split(), PTQ4SNN_TIMEOUT="60")
    assert ran.returncode != 0
    found = re.findall("ptq4snn: error: .*", ran.stderr)
    assert len(found) == 1 and said in found[0], ran.stderr


class Board:
    """The store, in one process."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}

    def add(self, key: str, value: int, /) -> int:
        self.keys[key] = self.keys.get(key, 0) + value
        return self.keys[key]

    def set(self, key: str, value: str, /) -> None:
        self.keys[key] = len(value)

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        if any(key not in self.keys for key in keys):
            raise RuntimeError(timeout)


def test_of_processes_that_fail_one_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    board = Board()
    one, other = LastWords(board, 1), LastWords(board, 0)
    other.taken, other.spoken = one.taken, one.spoken
    with pytest.raises(DataError) as told, one.of_one():
        raise DataError("odd")
    assert told.value.speaks
    with pytest.raises(ToldElsewhere), other.of_one():
        raise TeamError("has died")
    assert len(at_exit) == 1 and one.spoken not in board.keys
    at_exit[0]()
    assert one.spoken in board.keys
    with pytest.raises(DataError), LastWords(board, 1).of_one():  # another run
        raise DataError("odd")


@pytest.mark.parametrize("text", ["nan", "inf", "1e30", "0", "-1", "1000001", "soon"])
def test_a_timeout_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("PTQ4SNN_TIMEOUT", text)
    with pytest.raises(TeamError, match=r"PTQ4SNN_TIMEOUT is .* at most 1,000,000$"), from_environment():
        pass


def test_alone_a_team_is_a_loop() -> None:
    assert SOLO.map(lambda x: x * 2, range(3), "numbers") == [0, 2, 4]
    assert SOLO.all(5, "numbers") == [5] and SOLO.told(lambda: 7, "numbers") == 7
    with pytest.raises(PTQ4SNNError, match="here"), SOLO.raised_in_all("errors"):
        raise PTQ4SNNError("here")


def test_pieces_are_dealt_out_whole() -> None:
    dealt = [dict(Team(rank, 3).deal("abcdefg")) for rank in range(3)]
    assert [sorted(d) for d in dealt] == [[0, 3, 6], [1, 4], [2, 5]]
    assert "".join({**dealt[0], **dealt[1], **dealt[2]}[i] for i in range(7)) == "abcdefg"

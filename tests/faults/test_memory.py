"""Memory that runs out: fewer samples run at once, the user is told, and the bits are the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import build, pixels
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ptq4snn
from ptq4snn.cli import main
from ptq4snn.errors import MemoryWarning, OutOfMemory
from ptq4snn.memory import Portion, Room, ran_out
from ptq4snn.models.neuron import LIF

SAYS = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
FAILURES = (RuntimeError(SAYS), MemoryError(), torch.OutOfMemoryError("CUDA out of memory"))


class Fails(TorchDispatchMode):
    """The n-th operation of torch gets no memory."""

    def __init__(self, number: int, why: Exception) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.left, self.why = number, why

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.why
        return func(*args, **(kwargs or {}))


@contextmanager
def little_memory(monkeypatch: pytest.MonkeyPatch, most: int, seed: int = 0) -> Iterator[dict[str, int]]:
    """Inside, more than `most` samples at once fail at a random operation, again and again; how often, by
    stage."""
    r, failed = random.Random(seed), dict[str, int]()
    plain = Room.run

    def run(self: Room, x: Tensor, work: Callable[[Portion], Any], what: str, mark: Any = None) -> Any:
        def breaks(portion: Portion) -> Any:
            if portion.count <= most:
                return work(portion)
            why = r.choice(FAILURES)
            try:
                with Fails(r.choice((1, 2, 5, 20, 60, 150)), why):
                    work(portion)
            finally:
                failed[what] = failed.get(what, 0) + 1
            raise why  # it had fewer operations

        if what not in failed or r.random() < 0.1:
            self.most = None  # it fails anew
        return plain(self, x, breaks, what, mark)

    with monkeypatch.context() as m, warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryWarning)
        m.setattr(Room, "run", run)
        yield failed


class Steps(nn.Module):
    """Frames [B, T, 6], resets that are soft; layers that take [T, B] and [T B] at once."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b, self.m, self.c = (
            nn.Linear(6, 24),
            LIF(),
            nn.Linear(24, 24),
            LIF(),
            nn.Linear(24, 4),
        )
        g = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.7 * torch.randn(p.shape, generator=g))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s = self.n(self.a(x.transpose(0, 1)))  # [T, B, 24]
        t = self.m(self.b(s.flatten(0, 1)).view_as(s))
        out: Tensor = self.c(t.flatten(0, 1)).view(*t.shape[:2], 4).mean(0)
        return out


def nets() -> dict[str, tuple[nn.Module, Tensor]]:
    frames = torch.randn(64, 4, 6, generator=torch.Generator().manual_seed(0))
    return {"images": (build(), pixels(64)), "steps": (Steps(), frames)}


def saved(folder: Path, net: nn.Module, x: Tensor, recipe: str) -> dict[str, bytes]:
    """All files of a run, but for the page."""
    folder.mkdir()
    q = ptq4snn.quantize(net, x, recipe, holdout=16, allocation="uniform", progress=False)
    q.save(folder / "q.ptq", page=False)
    return {f.name: f.read_bytes() for f in sorted(folder.iterdir())}


CASES = [("images", "w4m4", 8), ("steps", "w4m4", 3)]
MORE = [(n, r, m) for n in ("images", "steps") for r in ("w4m4", "fast+w4m4") for m in (8, 5, 3, 1)]
FULL = os.environ.get("PTQ4SNN_FULL") == "1"


@pytest.mark.parametrize(("net", "recipe", "most"), MORE if FULL else CASES)
def test_fewer_samples_at_once_give_the_same_bytes(
    net: str, recipe: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nets()[net]
    wanted = saved(tmp_path / "whole", model, x, recipe)
    with little_memory(monkeypatch, most, most) as failed:
        found = saved(tmp_path / "parts", model, x, recipe)
    assert {"observing the float model", "running the network", "comparing with float"} <= failed.keys()
    assert recipe != "w4m4" or failed["second moments"] > 0
    assert found == wanted


def test_an_evaluation_goes_on_and_scores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nets()["images"]
    y = torch.arange(len(x)) % 10
    q = ptq4snn.quantize(model, x, "fast+w4m4", holdout=16, progress=False)
    wanted = ptq4snn.evaluate(q, [(x, y)], progress=False)
    with little_memory(monkeypatch, 5) as failed:
        found = ptq4snn.evaluate(q, [(x, y)], progress=False)
    assert failed["evaluating"] > 0
    assert {**found, "throughput": None} == {**wanted, "throughput": None}


def test_the_user_is_told_once_for_each_halving() -> None:
    seen: list[int] = []

    def work(portion: Portion) -> Tensor:
        seen.append(portion.count)
        if portion.count > 4:
            raise RuntimeError(SAYS)
        return portion.x

    room = Room()
    with pytest.warns(MemoryWarning) as told:
        assert torch.equal(torch.cat(room.run(torch.arange(18), work, "trying")), torch.arange(18))
    room.run(torch.arange(18), work, "trying")  # it is known by now
    assert seen == [18, 9, 4, 4, 4, 4, 2, 4, 4, 4, 4, 2]
    assert [str(w.message)[:46] for w in told] == [
        f"there is not enough memory for {n} samples at once"[:46] for n in (18, 9)
    ]


def test_what_cannot_be_parted_ends_with_one_sentence() -> None:
    def fails(portion: Portion) -> None:
        raise MemoryError

    with pytest.warns(MemoryWarning), pytest.raises(OutOfMemory, match=r"a single sample \(trying\)"):
        Room().run(torch.arange(2), fails, "trying")
    with pytest.raises(OutOfMemory, match=r"for 'head' stays float: set micro_batch in the recipe to 8"):
        Room(whole="'head' stays float").run(torch.arange(16), fails, "trying")
    with pytest.raises(OutOfMemory, match="rows of 4 samples"):
        Portion(torch.zeros(4), 0, 4, 16).check_rows(12, "lif")


class Drawing(nn.Module):
    """Spikes drawn by the brightness."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 12), LIF(), nn.Linear(12, 3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        drawn = (torch.rand(4, *x.shape) < x.sigmoid()).float()
        out: Tensor = self.b(self.n(self.a(drawn))).mean(0)
        return out


def test_a_network_that_draws_is_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    with (
        little_memory(monkeypatch, 4),
        pytest.raises(OutOfMemory, match="the model draws random numbers, others for each number of samples"),
    ):
        ptq4snn.quantize(Drawing(), x, "fast+w4m4", holdout=16, progress=False)


@pytest.mark.parametrize("why", FAILURES)
def test_the_command_line_says_one_sentence(
    why: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise why

    assert ran_out(why)
    monkeypatch.setattr("ptq4snn.api.prepare", fails)
    assert main(["quantize", "--out", str(tmp_path / "q.ptq")]) == 2
    assert capsys.readouterr().err.startswith(
        "ptq4snn: error: there is not enough memory to quantize: take fewer"
    )
    assert not list(tmp_path.iterdir())


CHILD = """
import resource, sys
from pathlib import Path
import torch
from conftest import build, pixels
from ptq4snn.cli.main import short_warnings
from ptq4snn.errors import PTQ4SNNError
import ptq4snn
torch.set_num_threads(1)
net, x = build(), pixels(64, 72)
ptq4snn.quantize(build(), pixels(64), "w4m4", holdout=16, allocation="uniform")  # imports what it needs
share, file = float(sys.argv[1]), Path(sys.argv[2])
if share:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + int(share), resource.RLIM_INFINITY))
try:
    with short_warnings():
        q = ptq4snn.quantize(net, x, "w4m4", holdout=16, allocation="uniform", progress=False)
        q.save(file, page=False)
except PTQ4SNNError as why:
    print(why, file=sys.stderr)
    sys.exit(2)
"""


@pytest.mark.skipif(not FULL or not sys.platform.startswith("linux"), reason="PTQ4SNN_FULL=1 on Linux")
def test_processes_that_get_less_and_less_memory(tmp_path: Path) -> None:
    """By the system's own limit: the same bytes, or one sentence; both happen, and halving is told."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(most: int) -> tuple[int, str, bytes]:
        file = tmp_path / f"{most}.ptq"
        command = [sys.executable, "-c", CHILD, str(most), str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, file.read_bytes() if file.exists() else b""

    code, _, wanted = run(0)
    assert code == 0
    ends = {"whole": 0, "halved": 0, "refused": 0}
    for megabytes in (20, 60, 90, 120, 150, 180, 220, 260, 320, 400, 500, 700):
        code, said, found = run(megabytes * 2**20)
        assert code in (0, 2) and "Traceback" not in said, said
        if code == 2:
            assert "not enough memory" in said.splitlines()[-1] and not found
            ends["refused"] += 1
        else:
            assert found == wanted
            ends["halved" if "samples at once" in said else "whole"] += 1
    print(ends)
    assert ends["halved"] > 0 and ends["refused"] > 0

"""Runs on a real Ray cluster of this machine: the same table, whoever dies; one sentence for what fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiments.small import FEW, Case
from torch import Tensor, nn

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.bench import Bench
from ptq4snn.experiments.cluster import Cluster
from ptq4snn.experiments.compare import compare
from ptq4snn.experiments.comparison import Comparison
from ptq4snn.experiments.methods import parse_methods

ray = pytest.importorskip("ray")
METHODS = ["w4m32", "B=uniform+w4m2"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One for all tests of this file: starting it takes seconds."""
    here = str(Path(__file__).parents[1])  # workers must be able to import the models below
    source = str(Path(__file__).parents[2] / "src")
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": f"{source}:{here}", "OMP_NUM_THREADS": "1"}},
    )  # fmt: skip
    yield "local"
    ray.shutdown()


def compared(case: Case, model: nn.Module, folder: Path, **options: Any) -> Comparison:
    given: dict[str, Any] = {"seeds": (0, 1), "changes": FEW, "folder": folder, **options}
    return compare(model, case.pool, case.test, METHODS, **given)


def figures(found: Comparison) -> list[Any]:
    """All but when it was run and how long it took."""
    return [{k: v for k, v in r.items() if k not in ("seconds", "date")} for r in found.runs]


class Deadly(nn.Module):
    """Kills the first worker process that runs it."""

    def __init__(self, net: nn.Module, note: Path) -> None:
        super().__init__()
        self.net, self.note, self.home = net, str(note), os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.home:
            try:
                os.close(os.open(self.note, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        out: Tensor = self.net(x)
        return out


class Broken(nn.Module):
    """Runs at home only."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.home = net, os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.home:
            raise PTQ4SNNError("the model stays at home")
        out: Tensor = self.net(x)
        return out


def test_the_table_is_that_of_one_process_and_nothing_is_run_twice(
    case: Case, tmp_path: Path, cluster: str
) -> None:
    alone = compared(case, case.model, tmp_path / "alone")
    shared = compared(case, case.model, tmp_path / "shared", cluster=cluster)
    assert figures(shared) == figures(alone)
    told: list[bool] = []
    again = compared(
        case, case.model, tmp_path / "shared", cluster=cluster, report=lambda m, s, r, kept: told.append(kept)
    )
    assert told == [True] * 5 and again.runs == shared.runs


def test_a_run_whose_worker_is_killed_is_given_to_another(case: Case, tmp_path: Path, cluster: str) -> None:
    note = tmp_path / "killed"
    model = Deadly(case.model, note)
    found = compared(case, model, tmp_path / "runs", seeds=(0,), cluster=cluster)
    assert note.exists()
    assert figures(found) == figures(compared(case, model, tmp_path / "alone", seeds=(0,)))


def test_what_a_worker_raises_is_raised_here(case: Case, tmp_path: Path, cluster: str) -> None:
    with pytest.raises(PTQ4SNNError, match=r"^the model stays at home$"):
        compared(case, Broken(case.model), tmp_path / "runs", cluster=cluster)


def test_runs_that_fit_no_node_are_refused(case: Case, tmp_path: Path, cluster: str) -> None:
    asked = (
        r"^each run asks for 64 cores and 0 GPUs, and the largest node .* 'local' has 2 cores and 0 GPUs: "
    )
    with pytest.raises(PTQ4SNNError, match=asked):
        compared(case, case.model, tmp_path, cluster=Cluster(cluster, cpus=64))


@pytest.mark.parametrize(
    ("asked", "largest"),
    [((1, 1.0), "8 cores and 0 GPUs"), ((5, 2.0), "4 cores and 1 GPU"), ((9, 0.0), "8 cores and 0 GPUs")],
)
def test_one_node_must_have_all_that_a_run_asks_for(
    case: Case, tmp_path: Path, asked: tuple[int, float], largest: str
) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": asked[1] == 2.0, "Resources": {"CPU": 4.0, "GPU": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    with pytest.raises(PTQ4SNNError, match=f"has {largest}"):
        Cluster("local", *asked)._refuse_too_small(SimpleNamespace(nodes=lambda: nodes))


def test_a_run_that_is_lost_too_often_is_one_sentence() -> None:
    def get(ready: object) -> None:
        raise ray.exceptions.WorkerCrashedError

    lost = SimpleNamespace(get=get, exceptions=ray.exceptions)
    sentence = r"w4m2 seed 3 was lost 4 times on the cluster local \(WorkerCrashedError\): "
    with pytest.raises(PTQ4SNNError, match=sentence):
        Cluster()._figures(lost, None, parse_methods(["w4m2"])[-1], 3)


def test_without_ray_it_is_one_sentence(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        PTQ4SNNError, match=r'^a comparison on a cluster needs Ray: pip install "ptq4snn\[ray\]"'
    ):
        compared(case, case.model, tmp_path, cluster="local")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere", "127.0.0.1:much"])
def test_no_cluster_is_one_sentence_before_samples_are_read(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.delattr(Bench, "setting")
    with pytest.raises(PTQ4SNNError, match=f"there is no Ray cluster at '{address}'"):
        compared(case, case.model, tmp_path, cluster=Cluster(address))

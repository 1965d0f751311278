"""The runs of a comparison as tasks of a Ray cluster: one for each (model, method, seed) that is not stored.

The model and its data go to the workers once. A worker that dies takes its run with it, and Ray gives the run
to another, which goes on from the units of rounding that were finished if both see the same folder. What a
run gives does not depend on who made it: the table is that of one process.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from ptq4snn.errors import PTQ4SNNError
from ptq4snn.experiments.bench import Bench
from ptq4snn.experiments.methods import Method
from ptq4snn.extras import needed_by
from ptq4snn.progress import Silent
from ptq4snn.run_store import Store
from ptq4snn.schema.comparison_types import RunResult

__all__ = ["Cluster"]

LOCAL = "local"  # a cluster of this machine's cores, for as long as the comparison runs
HERE = (LOCAL, "auto")
PATIENCE = 5.0  # seconds until a cluster answers
RETRIES = 3  # times that a run is given to another worker
_benches: dict[str, Bench] = {}  # of a worker: what it has unpacked, with its last observation


@dataclass(frozen=True)
class Cluster:
    """address: "local", or that of a running cluster: HOST:PORT, ray://HOST:PORT, or auto for the one that
    runs here. cpus: cores, and threads, of each run. gpus: of each run, if its device is one."""

    address: str = LOCAL
    cpus: int = 1
    gpus: float = 0.0

    @classmethod
    def of(cls, given: Cluster | str | None) -> Cluster | None:
        return cls(given) if isinstance(given, str) else given

    def results(
        self, bench: Bench, tasks: Sequence[tuple[Method, int | None]]
    ) -> Iterator[tuple[int, RunResult, bool]]:
        """The number of each task, its figures, and whether they were there already, as they become known."""
        self._refuse_unreachable()  # before the samples are read
        settings = [bench.setting(*task) for task in tasks]
        missing = []
        for i, setting in enumerate(settings):
            if (found := bench.stored(setting)) is not None:
                yield i, found, True
            else:
                missing.append(i)
        if not missing:
            return
        with self._joined() as ray:
            for i, result in self._run(ray, bench, {i: tasks[i] for i in missing}):
                bench.keep(settings[i], result)  # workers may see another disk
                yield i, result, False

    def _run(
        self, ray: Any, bench: Bench, tasks: dict[int, tuple[Method, int | None]]
    ) -> Iterator[tuple[int, RunResult]]:
        """Give all to the cluster, and take what comes."""
        task = ray.remote(work).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES)
        packed = ray.put(sent(bench))
        key = uuid4().hex  # of this comparison
        waiting = {task.remote(packed, key, *t, self.cpus): i for i, t in tasks.items()}
        try:
            while waiting:
                for ready in ray.wait(list(waiting), num_returns=1)[0]:
                    i = waiting.pop(ready)
                    yield i, self._figures(ray, ready, *tasks[i])
        finally:
            for left in waiting:
                ray.cancel(left, force=True)

    def _figures(self, ray: Any, ready: Any, method: Method, seed: int | None) -> RunResult:
        try:
            result: RunResult = ray.get(ready)
        except ray.exceptions.RayTaskError as why:
            if isinstance(why.cause, PTQ4SNNError):
                raise why.cause from None
            raise
        except ray.exceptions.RayError as why:
            draw = "" if seed is None else f" seed {seed}"
            raise PTQ4SNNError(
                f"{method.label}{draw} was lost {RETRIES + 1} times on the cluster {self.address} "
                f"({type(why).__name__}): look at the workers' memory, or run without --ray"
            ) from why
        return result

    @contextmanager
    def _joined(self) -> Iterator[Any]:
        """Ray, connected; a cluster that was started for this ends with it."""
        with needed_by("a comparison on a cluster"):
            import ray
        if ray.is_initialized():
            self._refuse_too_small(ray)
            yield ray
            return
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if self.address == LOCAL:
            path = os.pathsep.join(filter(None, sys.path))  # workers find what this process can import
            options |= {"include_dashboard": False, "runtime_env": {"env_vars": {"PYTHONPATH": path}}}
        try:
            ray.init(self.address, **options)
        except (ConnectionError, ValueError, RuntimeError, OSError) as why:
            raise self._not_there() from why
        try:
            self._refuse_too_small(ray)
            yield ray
        finally:
            ray.shutdown()

    def _refuse_too_small(self, ray: Any) -> None:
        """Ray itself would wait for ever for a node that is large enough."""
        found = [
            (n["Resources"].get("GPU", 0), n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]
        ]
        if any(gpus >= self.gpus and cpus >= self.cpus for gpus, cpus in found):
            return
        gpus, cpus = max(found, key=lambda has: has if self.gpus else has[1], default=(0, 0))
        raise PTQ4SNNError(
            f"each run asks for {_amount(self.cpus, self.gpus)}, and the largest node of the Ray cluster "
            f"{self.address!r} has {_amount(cpus, gpus)}: lower --ray-cpus, or choose another --device"
        )

    def _refuse_unreachable(self) -> None:
        """Ray itself would try for minutes."""
        if self.address in HERE:
            return
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except (OSError, ValueError, OverflowError) as why:
            raise self._not_there() from why

    def _not_there(self) -> PTQ4SNNError:
        return PTQ4SNNError(
            f"there is no Ray cluster at {self.address!r}: give --ray local, or the HOST:PORT that "
            "`ray start --head` tells"
        )


def _amount(cpus: float, gpus: float) -> str:
    return f"{cpus:g} {'core' if cpus == 1 else 'cores'} and {gpus:g} {'GPU' if gpus == 1 else 'GPUs'}"


def sent(bench: Bench) -> Bench:
    """What a worker needs of it: no open bars, no observation; the store's folder by its whole path."""
    conditions = replace(bench.conditions, progress=Silent(), cluster=None)
    folder = Path(bench.store.folder).resolve()
    return Bench(bench.model, bench.calibration, bench.test, Store(folder), conditions)


def work(bench: Bench, key: str, method: Method, seed: int | None, threads: int) -> RunResult:
    """One run, in a worker; the next of the same seed there needs no observation of its own."""
    torch.set_num_threads(threads)
    if key not in _benches:
        _benches.clear()
        _benches[key] = bench
    return _benches[key].result(method, seed)[0]

"""A command line whose quantizer is a stand-in: these tests are about the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ptq4snn
from ptq4snn.cli import main
from ptq4snn.discovery.model_digest import weights_digest
from ptq4snn.models import zoo


class StandIn(nn.Module):
    """What `quantize` and `load` return; saves like the real one."""

    report = {"average_bits": 4.0, "accuracy": None}

    def __init__(self, save: Callable[[Path], None] | None = None, not_lowered: str = "") -> None:
        super().__init__()
        self.write, self.not_lowered = save, not_lowered
        self.source: str | None = None

    def summary(self) -> str:
        return "SUMMARY"

    def save(self, path: str | Path, page: bool = False) -> None:
        Path(path).write_bytes(b"BUNDLE")
        if self.write is not None:
            self.write(Path(path))
        Path(f"{path}.report.json").write_text("{}")


@dataclass
class Calls:
    """What the command line asked of the API."""

    quantize: dict[str, Any] = field(default_factory=dict)
    evaluate: list[Any] = field(default_factory=list)
    inspect: dict[str, Any] = field(default_factory=dict)
    raises: BaseException | None = None
    save: Callable[[Path], None] | None = None
    not_lowered: str = ""


class Found:
    def to_dict(self) -> dict[str, int]:
        return {"pairs": 1}

    def summary(self) -> str:
        return "FOUND"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    calls = Calls()

    def quantize(model: nn.Module, samples: Any, recipe: Any, **options: Any) -> StandIn:
        if calls.raises is not None:
            raise calls.raises
        calls.quantize = {"model": model, "samples": samples, "recipe": recipe, **options}
        return StandIn(calls.save, calls.not_lowered)

    def evaluate(model: nn.Module, batches: Any, **options: Any) -> dict[str, Any]:
        parts = list(batches)
        calls.evaluate.append(model)
        labelled = isinstance(parts[0], tuple)
        count = sum(len(p[0] if labelled else p) for p in parts)
        return {
            "task": "classification",
            "samples": count,
            "accuracy": 87.654 if labelled else None,
            "accuracy_top5": 99.21 if labelled else None,
            "throughput": {"samples_per_second": 812.4, "model_samples_per_second": 900.0},
        }

    def inspect(model: nn.Module, sample: Any, batch_axis: int = 0) -> Found:
        calls.inspect = {"model": model, "sample": sample, "batch_axis": batch_axis}
        return Found()

    def load(path: Path, model: nn.Module, loop: object = None, limits: object = None) -> StandIn:
        found = StandIn()
        found.source = weights_digest(model)
        return found

    stubs = {
        "quantize": quantize,
        "evaluate": evaluate,
        "inspect": inspect,
        "load": load,
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(ptq4snn.__dict__, name, stub)
    monkeypatch.setattr(zoo.Entry, "load", lambda self, **changes: nn.Linear(2, 2))
    monkeypatch.chdir(tmp_path)
    return calls


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, stdout, stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            code = main(list(argv))
        except SystemExit as e:  # argparse
            code = int(e.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def mynet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The user's own model, in a module of the working directory."""
    (tmp_path / "mynet_for_cli.py").write_text(
        "import torch\n"
        "def build(): return torch.nn.Linear(3, 2)\n"
        "def wrong(): return 'net'\n"
        "def fails(): raise RuntimeError('no such file\\nor so')\n"
    )
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "mynet.pt")
    monkeypatch.delitem(__import__("sys").modules, "mynet_for_cli", raising=False)
    return "mynet_for_cli"

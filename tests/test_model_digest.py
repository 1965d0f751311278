"""Hashes of models follow their weights and what they run, not their sources."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.discovery.model_digest import graph_digest, model_digest, weights_digest
from ptq4snn.errors import DataError
from ptq4snn.models.neuron import LIF

X = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self, gain: float = 1.0, theta: float = 1.0, steps: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.norm, self.lif = nn.Linear(3, 4), nn.BatchNorm1d(4), LIF(v_threshold=theta)
        self._gain, self._mask, self.steps = gain, torch.ones(4), steps

    def forward(self, x: Tensor) -> Tensor:
        current = self.norm(self.fc(x * self._gain)) * self._mask
        return self.lif(current.expand(self.steps, *current.shape)).mean(0)


def changed(change: Callable[[Any], object]) -> Net:
    net = Net()
    with torch.no_grad():
        change(net)
    return net


OTHERS = {
    "a private number": lambda: Net(gain=0.5),
    "a threshold": lambda: Net(theta=0.5),
    "time steps": lambda: Net(steps=3),
    "a weight": lambda: changed(lambda n: n.fc.weight[0, 0].add_(1e-6)),
    "a constant": lambda: changed(lambda n: n._mask[0].mul_(0)),
    "a norm's epsilon": lambda: changed(lambda n: setattr(n.norm, "eps", 1e-3)),
    "a hook": lambda: changed(lambda n: n.fc.register_forward_hook(lambda m, a, out: out + 1)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_changes_the_result_changes_the_hash(what: str) -> None:
    assert model_digest(OTHERS[what](), X) != model_digest(Net(), X)


def test_what_changes_nothing_does_not() -> None:
    found = model_digest(Net(), X)
    assert found == model_digest(Net().train(), X) == model_digest(Net(), X * 2)
    net = Net()
    net(X)  # leaves counters, and a state in some neurons
    net.eval()
    net.norm.load_state_dict(Net().norm.state_dict())
    assert net.norm.num_batches_tracked is not None
    net.norm.num_batches_tracked += 5
    assert model_digest(net, X) == found
    assert graph_digest(changed(lambda n: n.fc.weight.zero_()), X) == graph_digest(Net(), X)
    assert weights_digest(Net(gain=2.0)) == weights_digest(Net())
    assert model_digest(torch.compile(Net()), X) == found  # type: ignore[arg-type]


def test_hashing_leaves_the_model_and_the_random_state() -> None:
    net, before = Net().train(), torch.get_rng_state()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    torch.set_rng_state(before)
    model_digest(net, X)
    assert torch.equal(before, torch.get_rng_state()) and net.training
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())


def test_of_another_process() -> None:
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); from test_model_digest import Net, X\n"
        "from ptq4snn.discovery.model_digest import model_digest; print(model_digest(Net(), X))"
    )
    here = str(Path(__file__).parent)
    found = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True)
    assert found.stdout.strip() == model_digest(Net(), X), found.stderr


def test_a_model_that_cannot_run_is_told() -> None:
    with pytest.raises(DataError, match=r"cannot run on a sample of shape \[2, 5\]"):
        model_digest(Net(), torch.rand(2, 5))

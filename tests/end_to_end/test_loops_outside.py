"""The loop over time outside of the model: taken by `steps` or `loop`, refused where neither is given."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.cli import main
from ptq4snn.errors import BundleError, DataError, PTQ4SNNError, RecipeError, UnsupportedModel

snn = pytest.importorskip("snntorch")
utils = pytest.importorskip("snntorch.utils")

STEPS = 12
X = torch.rand(96, 20, generator=torch.Generator().manual_seed(0))
RECIPES = ["fast+w8m8", "w4m4"]


def filled(net: nn.Module) -> nn.Module:
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.Linear):
                m.weight.copy_(torch.randn(m.weight.shape, generator=g) * 0.4)
                m.bias.copy_(torch.randn(m.bias.shape, generator=g) * 0.05)
    return net.eval()


def tutorial() -> nn.Module:
    """As snnTorch's tutorials write it: one step a call, the states inside."""
    leaky: Any = snn.Leaky
    return filled(
        nn.Sequential(
            nn.Linear(20, 24), leaky(beta=0.9, init_hidden=True), nn.Linear(24, 24),
            leaky(beta=0.9, init_hidden=True), nn.Linear(24, 5), leaky(beta=0.9, init_hidden=True,
        output=True), )
    )  # fmt: skip


def forward_pass(net: Any, x: Tensor) -> Tensor:
    """Spikes [T, B, 5]."""
    utils.reset(net)
    return torch.stack([net(x)[0] for _ in range(STEPS)])


class Currents(nn.Module):
    """Returns the classifier's current of one step, and takes and gives back its states."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(20, 24), snn.Leaky(beta=0.9)
        self.b, self.n2 = nn.Linear(24, 24), snn.Leaky(beta=0.9)
        self.c = nn.Linear(24, 5)
        filled(self)

    def forward(self, x: Tensor, m1: Tensor, m2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, m1 = self.n1(self.a(x), m1)
        s, m2 = self.n2(self.b(s), m2)
        return self.c(s), m1, m2


def run_currents(net: Any, x: Tensor) -> Tensor:
    m1 = m2 = torch.zeros(x.shape[0], 24)
    out = []
    for _ in range(STEPS):
        y, m1, m2 = net(x, m1, m2)
        out.append(y)
    return torch.stack(out)


class Whole(nn.Module):
    """What users had to write: the loop inside."""

    def __init__(self, net: nn.Module, loop: Any) -> None:
        super().__init__()
        self.net, self.loop = net, loop

    def forward(self, x: Tensor) -> Any:
        return self.loop(self.net, x)


NETS = {"spikes": (tutorial, forward_pass), "currents": (Currents, run_currents)}


def test_a_single_step_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedModel, match=r"single time step.*steps=T or loop="):
        ptq4snn.quantize(tutorial(), X, "fast+w8m8")
    assert ptq4snn.quantize(tutorial(), X, "fast+w8m8", steps=1).plan.steps == 1


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", NETS)
def test_the_loop_is_quantized_as_if_it_were_inside(name: str, recipe: str, tmp_path: Path) -> None:
    make, loop = NETS[name]
    q = ptq4snn.quantize(make(), X, recipe, loop=loop)
    whole = ptq4snn.quantize(Whole(make(), loop), X, recipe)
    assert q.plan.steps == STEPS
    expected = whole(X)
    assert torch.equal(loop(q, X), expected)  # in the user's own loop
    assert torch.equal(q.sequence(X), expected)
    q.save(tmp_path / "m.ptq")
    found = ptq4snn.runtime.load(tmp_path / "m.ptq")(X.numpy())
    assert np.array_equal(found, expected.numpy())
    for again in (ptq4snn.load(tmp_path / "m.ptq", make()), copy.deepcopy(q)):
        assert torch.equal(loop(again, X), expected)


def test_streaming_follows_the_users_loop(tmp_path: Path) -> None:
    q = ptq4snn.quantize(tutorial(), X, "fast+w4m4", loop=forward_pass)
    q.save(tmp_path / "m.ptq")
    rt, spikes = ptq4snn.runtime.load(tmp_path / "m.ptq"), forward_pass(q, X[:4])
    for t in range(STEPS):
        assert np.array_equal(np.squeeze(rt.step(X[:4].numpy())), spikes[t].numpy())


def test_steps_stand_for_the_loop_over_one_input() -> None:
    q = ptq4snn.quantize(tutorial(), X, "fast+w8m8", steps=STEPS)
    by_loop = ptq4snn.quantize(tutorial(), X, "fast+w8m8", loop=forward_pass)
    # both stack the spikes; `steps` stacks the membrane that the net returns, too, so that it is an output
    assert all(q.plan.neurons[n] == by_loop.plan.neurons[n] for n in ("1", "3"))
    assert q.plan.neurons["5"].readout and not by_loop.plan.neurons["5"].readout
    spikes, membranes = q.sequence(X)
    assert torch.equal(forward_pass(q, X), spikes) and membranes.shape == spikes.shape


def test_steps_over_frames() -> None:
    frames = torch.rand(STEPS, 64, 20, generator=torch.Generator().manual_seed(2))
    q = ptq4snn.quantize(tutorial(), frames, "fast+w8m8", steps=STEPS, batch_axis=1)
    q.reset_state()
    found = torch.stack([q(frame)[0] for frame in frames])
    assert torch.equal(found, q.sequence(frames)[0])
    with pytest.raises(DataError, match="12 frames on axis 0, and steps is 5"):
        ptq4snn.quantize(tutorial(), frames, "fast+w8m8", steps=5, batch_axis=1)


def test_evaluate_runs_the_sequence(tmp_path: Path) -> None:
    q = ptq4snn.quantize(tutorial(), X, "fast+w8m8", loop=forward_pass)
    labels = forward_pass(q, X).mean(0).argmax(1)
    assert ptq4snn.evaluate(q, [(X, labels)])["accuracy"] == 100.0
    assert q.one_step  # and is what it was
    q.save(tmp_path / "m.ptq")
    with pytest.raises(BundleError, match="its loop is not known"):
        ptq4snn.load(tmp_path / "m.ptq", tutorial()).sequence(X)
    again = ptq4snn.load(tmp_path / "m.ptq", tutorial(), loop=forward_pass)
    assert ptq4snn.evaluate(again, [(X, labels)])["accuracy"] == 100.0


def test_a_loop_that_never_calls_the_net() -> None:
    """What comes back could not tell a step from a sequence."""

    def by_parts(net: Any, x: Tensor) -> Tensor:
        utils.reset(net)
        out = []
        for _ in range(STEPS):
            h = x
            for part in list(net)[:-1]:
                h = part(h)
            out.append(h)
        return torch.stack(out)

    with pytest.raises(UnsupportedModel, match="never the net itself"):
        ptq4snn.quantize(tutorial(), X, "fast+w8m8", loop=by_parts)


def test_mistakes() -> None:
    assert ptq4snn.quantize(tutorial(), X, "fast+w8m8", steps=np.int64(2)).plan.steps == 2  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="both given"):
        ptq4snn.quantize(tutorial(), X, steps=3, loop=forward_pass)
    with pytest.raises(RecipeError, match="steps must be"):
        ptq4snn.quantize(tutorial(), X, steps=0)
    with pytest.raises(RecipeError, match="loop must be a function"):
        ptq4snn.quantize(tutorial(), X, loop="forward_pass")  # type: ignore[arg-type]

    def broken(net: Any, x: Tensor) -> Tensor:
        raise ValueError("no such thing")

    with pytest.raises(PTQ4SNNError, match="no such thing"):
        ptq4snn.quantize(tutorial(), X, loop=broken)


MODULE = """
from test_loops_outside import forward_pass, tutorial
"""


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loopnet.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "loopnet", raising=False)
    np.save(tmp_path / "x.npy", X.numpy())
    words = ["quantize", "--model", "loopnet:tutorial", "--data", "x.npy", "--recipe", "fast+w8m8"]
    assert main(words) == 2
    assert "--steps or --loop" in capsys.readouterr().err and not list(tmp_path.glob("*.ptq"))
    assert main([*words, "--loop", "loopnet:forward_pass", "--out", "loop.ptq"]) == 0
    assert main([*words, "--steps", str(STEPS), "--out", "steps.ptq"]) == 0
    q = ptq4snn.load("loop.ptq", tutorial())
    assert np.array_equal(ptq4snn.runtime.load("loop.ptq")(X.numpy()), forward_pass(q, X).numpy())
    again = ptq4snn.load("steps.ptq", tutorial())
    assert np.array_equal(ptq4snn.runtime.load("steps.ptq")(X.numpy())[0], forward_pass(again, X).numpy())
    assert json.loads(Path("loop.ptq.report.json").read_text())["summary"]["steps"] == STEPS
    labels = forward_pass(q, X).mean(0).argmax(1)
    np.savez(tmp_path / "test.npz", x=X.numpy(), y=labels.numpy())
    options = [
        "--data",
        "test.npz",
        "--model",
        "loopnet:tutorial",
        "--loop",
        "loopnet:forward_pass",
        "--float",
    ]
    capsys.readouterr()
    assert main(["evaluate", "loop.ptq", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loop.ptq"]["accuracy"] == 100.0 and found["float"]["accuracy"] > 50
    assert main(["evaluate", "loop.ptq", "--data", "test.npz", "--json"]) == 0  # the program needs no loop
    assert json.loads(capsys.readouterr().out)["loop.ptq"]["accuracy"] == 100.0

"""Nothing wrong in silence: types, autocast, wrappers, time taken for samples, things that are no models."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import DataError, PTQ4SNNError, UnsupportedModel, UnsupportedOperation
from ptq4snn.models.neuron import LIF


class Net(nn.Module):
    """Wide enough that half precision loses integers; x[B, 40] is shown for four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n1 = nn.Linear(40, 96), LIF(v_threshold=0.5)
        self.b, self.n2 = nn.Linear(96, 96), LIF(v_threshold=0.5)
        self.c = nn.Linear(96, 4)
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * (0.5 if p.dim() > 1 else 0.1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c(self.n2(self.b(self.n1(self.a(x.expand(4, *x.shape)))))).mean(0)
        return out


class Amp(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x).float()


class TimeFirst(Net):
    def __init__(self, mean: bool) -> None:
        super().__init__()
        self.mean = mean

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(self.n2(self.b(self.n1(self.a(x)))))
        return y.mean(0) if self.mean else y


X = torch.rand(64, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def q() -> ptq4snn.QuantizedModel:
    return ptq4snn.quantize(Net(), X, "fast+w8m8")


def test_autocast_around_the_call_changes_no_bit(q: ptq4snn.QuantizedModel) -> None:
    expected = q(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = q(X)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_autocast_around_quantize_changes_no_bit(q: ptq4snn.QuantizedModel) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = ptq4snn.quantize(Net(), X, "fast+w8m8")
    assert again.plan == q.plan


def test_autocast_inside_forward_is_refused(q: ptq4snn.QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperation, match="autocast"):
        ptq4snn.quantize(Amp(), X, "fast+w8m8")
    q.save(tmp_path / "m.ptq")
    loaded = ptq4snn.load(tmp_path / "m.ptq", Amp())
    with pytest.raises(UnsupportedOperation, match="autocast"):
        loaded(X)


@pytest.mark.parametrize("half", [torch.half, torch.bfloat16])
def test_half_precision_is_refused(q: ptq4snn.QuantizedModel, half: torch.dtype) -> None:
    expected = q(X)
    with pytest.raises(PTQ4SNNError, match="cannot be turned into"):
        q.to(half)
    assert torch.equal(q(X), expected)


@pytest.mark.parametrize("part", ["model", "model.b", "model.n2"])
def test_half_precision_of_a_part_is_refused(q: ptq4snn.QuantizedModel, part: str) -> None:
    twin = copy.deepcopy(q)
    with pytest.raises(PTQ4SNNError, match="cannot be turned into float16"):
        twin.get_submodule(part).half()
    assert torch.equal(twin(X), q(X))


def test_autocast_around_inspect_and_load(q: ptq4snn.QuantizedModel, tmp_path: Path) -> None:
    q.save(tmp_path / "m.ptq")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert list(ptq4snn.inspect(Net(), X).neurons) == ["n1", "n2"]
        assert torch.equal(ptq4snn.load(tmp_path / "m.ptq", Net())(X), q(X))


@pytest.mark.parametrize("change", [lambda m: m.float(), lambda m: m.double(), copy.deepcopy])
def test_other_types_and_copies_keep_the_bits(
    q: ptq4snn.QuantizedModel, change: Callable[[nn.Module], nn.Module]
) -> None:
    expected = q(X)
    assert torch.equal(change(q)(X), expected)


def test_pickling_says_what_to_do(q: ptq4snn.QuantizedModel) -> None:
    for write in (lambda: torch.save(q, io.BytesIO()), lambda: pickle.dumps(q)):
        with pytest.raises(PTQ4SNNError, match=r"q\.save"):
            write()


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("shape", [(4, 64, 40), (16, 24, 40)])
def test_time_is_never_taken_for_samples(mean: bool, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(3))
    with pytest.raises(DataError, match="give batch_axis=1"):
        ptq4snn.quantize(TimeFirst(mean), x, "fast+w8m8")
    found = ptq4snn.quantize(TimeFirst(mean), x, "fast+w8m8", batch_axis=1)
    assert found.report["summary"]["samples"] == shape[1] and found.plan.steps == shape[0]


class Late(TimeFirst):
    """Its last neuron sees one step, behind the mean over time."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(self.n1(self.a(x)).mean(0))
        out: Tensor = self.c(self.n2(h.unsqueeze(0))[0])
        return out


def test_one_neuron_is_enough_to_tell_time() -> None:
    x = torch.rand(6, 24, 40, generator=torch.Generator().manual_seed(3))
    with pytest.raises(DataError, match="give batch_axis=1"):
        ptq4snn.quantize(Late(True), x, "fast+w8m8")
    assert ptq4snn.quantize(Late(True), x, "fast+w8m8", batch_axis=1).report["summary"]["samples"] == 24


def test_evaluate_never_takes_time_for_samples() -> None:
    """As many labels as steps: nothing but the neurons could tell."""
    x, y = torch.rand(24, 24, 40, generator=torch.Generator().manual_seed(3)), torch.arange(24) % 4
    net = TimeFirst(False)
    found = ptq4snn.quantize(net, x, "fast+w8m8", batch_axis=1)
    for model in (net, found):
        with pytest.raises(DataError, match="give batch_axis=1"):
            ptq4snn.evaluate(model, [(x, y)])
        assert ptq4snn.evaluate(model, [(x, y)], batch_axis=1)["samples"] == 24
    with pytest.raises(DataError, match="batch_axis=1 if the samples lie there"):
        ptq4snn.evaluate(net, [(x[:5], y)])


def test_steps_of_a_net_that_runs_sequences_itself() -> None:
    x = torch.rand(6, 24, 40, generator=torch.Generator().manual_seed(3))
    for axis in (0, 1):
        with pytest.raises(DataError, match="leave steps or loop away"):
            ptq4snn.quantize(TimeFirst(False), x, "fast+w8m8", batch_axis=axis, steps=6)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"progress": "x"}, "an object with a method track"),
        ({"batch_axis": "1"}, "batch_axis must be a whole number"),
        ({"batch_axis": -1}, "batch_axis must be a whole number"),
        ({"device": "nowhere"}, "choose cpu or a device that torch sees"),
    ],
)
def test_wrong_arguments_are_one_sentence(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(PTQ4SNNError, match=words):
        ptq4snn.quantize(Net(), X, "fast+w8m8", **wrong)  # type: ignore[arg-type]


def test_samples_one_by_one_without_a_batch_axis() -> None:
    for samples in (X[0], list(X)):
        with pytest.raises(DataError, match=r"give batches: for one sample x\.unsqueeze\(0\)"):
            ptq4snn.quantize(Net(), samples, "fast+w8m8")


def test_samples_are_never_taken_for_time() -> None:
    class BatchFirst(TimeFirst):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1))

    x = torch.rand(24, 8, 40, generator=torch.Generator().manual_seed(3))
    with pytest.raises(DataError, match="give batch_axis=0"):
        ptq4snn.quantize(BatchFirst(True), x, "fast+w8m8", batch_axis=1)
    assert ptq4snn.quantize(BatchFirst(True), x, "fast+w8m8").plan.steps == 8


def test_compiled_models_are_unwrapped(q: ptq4snn.QuantizedModel) -> None:
    compiled = torch.compile(Net(), backend="eager")
    inner = Net()
    inner.b = torch.compile(inner.b, backend="eager")  # type: ignore[assignment]
    for model in (compiled, inner, nn.DataParallel(Net())):
        found = ptq4snn.quantize(model, X, "fast+w8m8")  # type: ignore[arg-type]
        assert found.plan == q.plan
        assert not any(hasattr(m, "_orig_mod") for m in found.modules())


def test_batch_norm_without_a_bias() -> None:
    class Normal(Net):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm1d(96)
            self.bn.register_parameter("bias", None)
            assert self.bn.running_var is not None
            self.bn.running_var.fill_(4.0)
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            y = self.b(self.n1(self.a(x.expand(4, *x.shape))))
            y = self.n2(self.bn(y.flatten(0, 1)).view(y.shape))
            return self.c(y).mean(0)

    assert ptq4snn.quantize(Normal(), X, "fast+w8m8").plan.norms == ("bn",)


def test_a_state_dict_is_no_model(q: ptq4snn.QuantizedModel, tmp_path: Path) -> None:
    q.save(tmp_path / "m.ptq")
    for call in (
        lambda: ptq4snn.load(tmp_path / "m.ptq", Net().state_dict()),  # type: ignore[arg-type]
        lambda: ptq4snn.quantize(Net().state_dict(), X),  # type: ignore[arg-type]
        lambda: ptq4snn.inspect(Net().state_dict(), X),  # type: ignore[arg-type]
    ):
        with pytest.raises(UnsupportedModel, match="state_dict"):
            call()


def test_neurons_of_another_framework_are_named() -> None:
    cell = type("LIFTorch", (nn.Identity,), {"__module__": "rockpool.nn.modules.torch.lif_torch"})
    with pytest.raises(UnsupportedModel, match="'1' is rockpool's LIFTorch"):
        ptq4snn.quantize(nn.Sequential(nn.Linear(40, 8), cell()), X)

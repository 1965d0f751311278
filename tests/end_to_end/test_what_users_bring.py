"""Types of samples and models, wrappers, several inputs, foreign neurons: taken, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.errors import DataError, PTQ4SNNError, UnsupportedModel, UnsupportedNeuron
from ptq4snn.models.neuron import LIF

FRAMES = torch.randint(0, 4, (48, 5, 8), generator=torch.Generator().manual_seed(0))
X = FRAMES.float()  # whole numbers, which every type holds
TYPES = (torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64)


class Net(nn.Module):
    """x[B, T, 8]; weights that bfloat16 holds too."""

    def __init__(self, neuron: type[nn.Module] = LIF) -> None:
        super().__init__()
        self.a, self.n, self.b, self.m = nn.Linear(8, 16), LIF(), nn.Linear(16, 16), neuron()
        self.head = nn.Linear(16, 3)
        g = torch.Generator().manual_seed(1)
        for p in self.parameters():
            p.data = (torch.randn(p.shape, generator=g) * 0.5).bfloat16().float()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.m(self.b(self.n(self.a(x.transpose(0, 1)))))).mean(0)
        return out


def quantized(model: nn.Module, samples: Any) -> ptq4snn.QuantizedModel:
    return ptq4snn.quantize(model, samples, "w8m8", allocation="uniform", progress=False)


@pytest.fixture(scope="module")
def expected() -> ptq4snn.QuantizedModel:
    return quantized(Net(), X)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_samples_of_any_type_are_the_same_numbers(
    kind: torch.dtype, expected: ptq4snn.QuantizedModel
) -> None:
    q = quantized(Net(), X.to(kind))
    assert q.plan == expected.plan
    assert torch.equal(q(X.to(kind)), expected(X))
    labels = expected(X).argmax(1)
    for model in (q, Net()):
        found = ptq4snn.evaluate(model, (X.to(kind), labels), progress=False)
        assert found == {
            **ptq4snn.evaluate(model, (X, labels), progress=False),
            "throughput": found["throughput"],
        }
    assert list(ptq4snn.inspect(Net(), X.to(kind)).neurons) == ["n", "m"]


def test_a_model_that_reads_bytes_itself_gets_bytes() -> None:
    class Bytes(Net):
        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype == torch.uint8
            return super().forward((x << 6).float() / 64)  # bytes overflow, floats have no shift

    q = quantized(Bytes(), FRAMES.to(torch.uint8))
    assert torch.equal(q(FRAMES.to(torch.uint8)), quantized(Net(), X)(X))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("samples", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_in_half_precision_is_that_of_its_weights(
    kind: torch.dtype, samples: torch.dtype, expected: ptq4snn.QuantizedModel, tmp_path: Path
) -> None:
    given = Net().to(kind)
    q = quantized(given, X.to(samples))
    assert given.a.weight.dtype == kind  # the user's own stays as it is
    assert q.plan == expected.plan and torch.equal(q(X.to(samples)), expected(X))
    q.save(tmp_path / "half.ptq")
    assert torch.equal(ptq4snn.load(tmp_path / "half.ptq", Net().to(kind))(X.to(kind)), expected(X))


def test_one_half_layer_is_enough(expected: ptq4snn.QuantizedModel) -> None:
    mixed = Net()
    mixed.b.half()
    assert torch.equal(quantized(mixed, X)(X), expected(X))


def test_wrappers_are_taken_off(expected: ptq4snn.QuantizedModel) -> None:
    inner = Net()
    inner.b = torch.compile(inner.b)  # type: ignore[assignment]
    compiled = Net()
    compiled.compile()
    wrapped: list[Any] = [nn.DataParallel(Net()), torch.compile(Net()), inner, compiled]
    for model in wrapped:
        assert quantized(model, X).plan == expected.plan


def test_a_mapping_is_samples_with_names(expected: ptq4snn.QuantizedModel) -> None:
    y = torch.zeros(len(X), dtype=torch.int64)
    assert quantized(Net(), {"frames": X, "labels": y}).plan == expected.plan
    assert quantized(Net(), [{"events": X, "target": y}]).plan == expected.plan


class Two(Net):
    def forward(self, x: Tensor, more: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x + more)


class Asks(Net):
    def forward(self, x: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return super().forward(x * scale)


class Sharded(Net):
    pass


Sharded.__name__ = "FullyShardedDataParallel"


@pytest.mark.parametrize(
    ("make", "samples", "words"),
    [
        (Two, [(X, X)], ("several inputs, x, more", "one tensor")),
        (Asks, X, ("several inputs, x, scale", "one tensor")),
        (lambda: torch.jit.trace(Net(), X), X, ("ScriptModule", "torch.nn.Module that it was made from")),
        (Sharded, X, ("FullyShardedDataParallel", "share of the weights")),
        (lambda: object(), X, ("torch.nn.Module", "not object")),
    ],
    ids=["two inputs", "a keyword", "script", "sharded", "no module"],
)
@pytest.mark.parametrize("call", [quantized, ptq4snn.inspect])
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_cannot_be_taken_is_named(make: Any, samples: Any, words: tuple[str, ...], call: Any) -> None:
    with pytest.raises(UnsupportedModel) as e:
        call(make(), samples)
    assert all(w in str(e.value) for w in words)


def test_a_state_that_a_loop_hands_on_is_no_second_input() -> None:
    class Step(Net):
        def forward(self, x: Tensor, spikes: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x)

    q = ptq4snn.quantize(
        Step(), X, "w8m8", allocation="uniform", progress=False, loop=lambda net, x: net(x, torch.zeros(1))
    )
    assert torch.equal(q.sequence(X), quantized(Net(), X)(X))


def test_arguments_that_may_be_left_out_are(expected: ptq4snn.QuantizedModel, tmp_path: Path) -> None:
    class Optional(Net):
        def forward(  # type: ignore[override]
            self, x: Tensor, state: Tensor | None = None, *more: Tensor, scale: float = 1.0, **rest: Any
        ) -> tuple[Tensor, Tensor | None]:
            return super().forward(x * scale), state

    q = quantized(Optional(), X)
    assert torch.equal(q(X)[0], expected(X)) and q(X)[1] is None
    assert q.program is not None
    q.save(tmp_path / "q.ptq")
    assert torch.equal(torch.from_numpy(ptq4snn.runtime.load(tmp_path / "q.ptq")(X.numpy())), expected(X))


def test_a_batch_with_two_inputs_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="a batch holds 2 inputs beside its labels"):
        quantized(Net(), [((X, X), torch.zeros(len(X)))])
    with pytest.raises(DataError, match="'left', 'right': name its samples x"):
        quantized(Net(), [{"left": X, "right": X}])


def test_a_state_that_nobody_hands_on_is_named() -> None:
    snn = pytest.importorskip("snntorch")

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Linear(8, 16), snn.Leaky(0.9), nn.Linear(16, 3)

        def forward(self, x: Tensor, mem: Tensor | None = None) -> tuple[Tensor, Tensor]:
            spikes, mem = self.n(self.a(x), self.n.init_leaky() if mem is None else mem)
            assert mem is not None
            return self.b(spikes), mem

    def handed_on(net: nn.Module, x: Tensor) -> Tensor:
        out, mem = net(x[0])
        for frame in x[1:]:
            more, mem = net(frame, mem)
            out = out + more
        return cast(Tensor, out)

    frames = X.transpose(0, 1).contiguous()
    with pytest.raises(UnsupportedModel, match=r"by an argument \(mem\). Give loop=") as e:
        ptq4snn.quantize(Step(), frames, "fast+w8m8", batch_axis=1, steps=5)
    assert str(e.value).count(". ") <= 1
    q = ptq4snn.quantize(Step(), frames, "fast+w8m8", batch_axis=1, loop=handed_on)
    assert q.program is not None, q.not_lowered
    forgetful = ptq4snn.quantize(
        Step(), frames, "fast+w8m8", batch_axis=1, loop=lambda net, x: sum(net(f)[0] for f in x)
    )
    assert forgetful.program is None and "starts from zeros again" in forgetful.not_lowered


def test_what_the_module_calls_itself_is_no_input(expected: ptq4snn.QuantizedModel) -> None:
    class Short(Net):
        def forward(s, x: Tensor) -> Tensor:
            return super().forward(x)

    patched = Net()
    patched.forward = Short().forward  # type: ignore[method-assign]
    assert quantized(Short(), X).plan == expected.plan
    with pytest.raises(PTQ4SNNError) as e:  # a forward of another module's parts has none of its own
        quantized(patched, X)
    assert "several inputs" not in str(e.value)


class AdaptiveLIF(nn.Module):
    """A neuron that no adapter knows."""

    def forward(self, x: Tensor) -> Tensor:
        v, out = torch.zeros_like(x[0]), []
        for current in x:
            v = 0.5 * v + current
            out.append((v > 1).to(x))
            v = v - out[-1]
        return torch.stack(out)


class MyIFNode(AdaptiveLIF):
    pass


class LIFTorch(AdaptiveLIF):
    pass


LIFTorch.__module__ = "rockpool.nn.modules"


class Only(nn.Module):
    """Without a neuron that is known."""

    def __init__(self, neuron: type[nn.Module]) -> None:
        super().__init__()
        self.a, self.m = nn.Linear(8, 4), neuron()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.m(self.a(x.transpose(0, 1))).mean(0)
        return out


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (AdaptiveLIF, "of class AdaptiveLIF; the nearest that is known is ptq4snn.models.neuron.LIF"),
        (MyIFNode, "of class MyIFNode; the nearest that is known is SpikingJelly's IFNode"),
        (LIFTorch, "rockpool's LIFTorch; export the network to NIR"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_an_unknown_neuron_is_told_with_the_nearest_known(
    kind: type[nn.Module], words: str, alone: bool
) -> None:
    with pytest.raises(UnsupportedModel if alone else UnsupportedNeuron) as e:
        quantized(Only(kind) if alone else Net(kind), X)
    assert f"'m' is {words}" in str(e.value) and "docs/guide.md, 'A neuron of your own'" in str(e.value)
    assert ('overrides={"m": {"exclude": True}}' in str(e.value)) is not alone
    assert str(e.value).count(". ") <= 1


def test_an_unknown_neuron_can_stay_float() -> None:
    q = ptq4snn.quantize(
        Net(AdaptiveLIF), X, "w8m8", allocation="uniform", progress=False, overrides={"m": {"exclude": True}}
    )
    assert q.report["summary"]["agreement"] > 0.8


def test_the_page_that_is_named_has_that_heading() -> None:
    page = Path(__file__).parents[2] / "docs" / "guide.md"
    assert "### A neuron of your own\n" in page.read_text("utf-8")


def test_other_failures_are_told_as_before() -> None:
    with pytest.raises(DataError, match="cannot run on a sample of shape"):
        quantized(Net(), X[..., :5].to(torch.uint8))
    with pytest.raises(PTQ4SNNError, match="no spiking neurons"):
        quantized(nn.Linear(8, 3), X)

"""Streams, chains and bare neurons end to end, against integers computed apart from the quantized modules.

Two small transformers of random weights: a Spike-Driven Transformer (streams, bare neurons without state)
and a network of separable convolutions and spike attention (chains, streams, bare neurons with state).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn import pipeline
from ptq4snn.bridge import basis
from ptq4snn.frameworks import Shell
from ptq4snn.models.neuron import LIF
from ptq4snn.models.patches import per_step
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.modules.carrier import StreamTensor, counted, plain
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.modules.quantized import QuantizedModel
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.numerics.fixed_point import rshift_even
from ptq4snn.pipeline import Prepared
from ptq4snn.recipe import Recipe

RECIPE = Recipe(calibration=64, holdout=16, sensitivity_batches=2)
LOW, HIGH = -32768, 32767


def images(n: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=g) * 200
    x = F.interpolate(coarse, size=16, mode="bilinear") + 55 * torch.rand(n, 3, 16, 16, generator=g)
    return (x.round() / 255 - 0.5) / 0.25


class Chains(nn.Module):
    """Separable convolution (1x1, depthwise, 1x1) and spike attention with a chain for q, on one stream."""

    def __init__(self, width: int = 16, heads: int = 2, T: int = 4) -> None:
        super().__init__()
        self.T, self.heads = T, heads
        self.stem, self.stem_bn = nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        self.lif1 = LIF()
        self.expand, self.bn1 = nn.Conv2d(width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)
        self.depth = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width, bias=False)
        self.point, self.bn2 = nn.Conv2d(2 * width, width, 1, bias=False), nn.BatchNorm2d(width)
        self.lif2 = LIF()
        self.q1 = nn.Conv2d(width, width, 1, bias=False)
        self.q2 = nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False)
        self.q3, self.q_bn = nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)
        self.kv, self.kv_bn = nn.Conv2d(width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)
        self.q_lif, self.kv_lif, self.attn_lif = LIF(), LIF(), LIF(v_threshold=0.5)
        self.proj, self.proj_bn = nn.Conv2d(width, width, 1), nn.BatchNorm2d(width)
        self.head_lif, self.head = LIF(), nn.Linear(width, 10)

    def by_head(self, x: Tensor) -> Any:
        return x.flatten(3).unflatten(2, (self.heads, -1)).transpose(-1, -2)  # [T, B, heads, N, d]

    def forward(self, x: Tensor) -> Tensor:
        x = per_step(self.stem_bn, per_step(self.stem, x.unsqueeze(0).repeat(self.T, 1, 1, 1, 1)))
        y = per_step(self.bn1, per_step(self.expand, self.lif1(x)))
        x = x + per_step(self.bn2, per_step(self.point, per_step(self.depth, y)))
        s = self.lif2(x)
        q = self.q_lif(per_step(self.q_bn, per_step(self.q3, per_step(self.q2, per_step(self.q1, s)))))
        k, v = self.kv_lif(per_step(self.kv_bn, per_step(self.kv, s))).chunk(2, 2)
        q, k, v = self.by_head(q), self.by_head(k), self.by_head(v)
        y = self.attn_lif((q @ (k.transpose(-1, -2) @ v)) * 0.125)
        y = y.transpose(-1, -2).reshape(x.shape)
        x += per_step(self.proj_bn, per_step(self.proj, y))
        logits: Tensor = self.head(self.head_lif(x.mean((-2, -1)))).mean(0)
        return logits


def calibrated(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights with BatchNorm statistics of random images, so that every neuron fires."""
    torch.manual_seed(seed)
    for name, m in model.named_modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = None
            last = name.split(".")[-1]
            writes = (
                last in ("rpe_bn", "proj_bn3", "fc2_bn", "bn2")
                or name.endswith("attn.proj_bn")
                or name == "proj_bn"
            )
            nn.init.normal_(m.weight, 0.5, 0.1)
            nn.init.normal_(m.bias, 0.3 if last == "proj_bn3" else 0.2 if writes else 1.0, 0.2)
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0.0, 1.0)
    model.train()
    with torch.no_grad():
        for i in range(4):
            model(images(16, 100 + i))
    return model.eval()


BUILD: dict[str, Callable[[], nn.Module]] = {
    "sdt": lambda: SpikeDrivenTransformer(32, 1, heads=4),
    "chains": Chains,
}


@functools.cache
def prepared(name: str) -> Prepared:
    torch.manual_seed(0)
    return pipeline.prepare(calibrated(BUILD[name]()), images(80, 1), RECIPE)


@functools.cache
def quantized(name: str, stream: str, bits: int) -> QuantizedModel:
    recipe = RECIPE.replace(weights=bits, membrane=float(bits), stream=stream, beta=0.6, percentile=98.0)
    return run(prepared(name), recipe)


def run(p: Prepared, recipe: Recipe) -> QuantizedModel:
    return pipeline.run(p, recipe)


CASES = [(n, s, b) for n in BUILD for s in ("multiply", "shift") for b in (4, 8)]
everywhere = pytest.mark.parametrize(("name", "stream", "bits"), CASES)


# the oracle


@dataclass
class Trace:
    """Everything that went in and out of the integer modules in one forward pass."""

    reads: dict[str, list[Tensor]] = field(default_factory=dict)
    writes: dict[str, list[Tensor]] = field(default_factory=dict)
    steps: dict[str, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = field(default_factory=dict)


def traced(q: QuantizedModel, x: Tensor) -> tuple[Trace, Tensor]:
    trace, handles = Trace(), []

    def watch(name: str) -> Any:
        def hook(_m: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
            trace.reads.setdefault(name, []).append(args[0].detach().clone())
            trace.writes.setdefault(name, []).append(out.detach().clone())

        return hook

    def probe(name: str) -> Any:
        def note(x: Tensor, h: Tensor, s: Tensor, v: Tensor, t: int) -> None:
            trace.steps.setdefault(name, []).append((x.clone(), h.clone(), s.clone(), v.clone()))

        return note

    for name in q.plan.projections:
        handles.append(q.model.get_submodule(name).register_forward_hook(watch(name)))
    for name in q.plan.neurons:
        q.core(name).probe = probe(name)
    try:
        with torch.no_grad():
            out = q(x)
    finally:
        for h in handles:
            h.remove()
        for name in q.plan.neurons:
            q.core(name).probe = None
    return trace, out


def whole(x: Tensor, what: str) -> Tensor:
    """Carriers as int64; anything between integers is an error."""
    x = plain(x).double()
    assert torch.equal(x, x.round()), what
    return x.long()


def over(x: Tensor, quantum: float, what: str) -> Tensor:
    """Carriers quantum * integer as int64."""
    y = plain(x).double() / quantum
    assert float((y - y.round()).abs().max()) < 1e-2, what
    return y.round().long()


def neuron_in_int64(plan: NeuronPlan, inputs: list[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """A, S and Vq of every step, by the formulas of docs/method.md in int64."""

    def vector(values: Any) -> Tensor:
        return plan.layout.broadcast(torch.tensor([int(v) for v in values], dtype=torch.int64))

    charge_m, charge_n = (vector(f[i] for f in plan.charge) for i in (0, 1))
    settle_m, settle_n = (vector(f[i] for f in plan.settle) for i in (0, 1))
    theta, rho = vector(plan.theta), vector(plan.rho)
    top, zero = vector(2 ** (b - 1) for b in plan.bits), vector(plan.zero)
    v: Tensor | None = None
    for x in inputs:
        a = over(x, plan.quantum, plan.name)
        if not plan.emits_units:
            a = a << plan.shift
        if v is not None:
            a = a + rshift_even(v * charge_m, charge_n)
        s = a >= theta
        kept = torch.where(s, 0 if plan.reset == "hard" else a - rho, a)
        v = torch.minimum(torch.maximum(rshift_even(kept * settle_m, settle_n), zero - top), zero + top - 1)
        assert int(a.abs().max()) <= plan.bound, plan.name
        yield a, s.long(), v


def projection_in_int64(q: QuantizedModel, name: str, x: Tensor) -> Tensor:
    """What a projection must emit for the carrier x: integer weights, integer bias, rescale and clip."""
    plan, integers = q.plan.projections[name], q.integers[name]
    module = q.model.get_submodule(name)
    assert isinstance(module, QuantProjection)
    inner = module.inner
    p = over(x, plan.quantum, name).double()  # float64 holds these sums exactly
    weight, bias = whole(integers.weight, name).double(), whole(integers.bias, name)
    if isinstance(inner, nn.Linear):
        y = F.linear(p, weight).long()
        column = (-1,)
    else:
        assert isinstance(inner, nn.Conv2d)
        y = F.conv2d(p, weight, None, inner.stride, inner.padding, inner.dilation, inner.groups).long()
        column = (-1, 1, 1)  # type: ignore[assignment]
    y = (y << plan.shift) + bias.view(column)
    assert int(y.abs().max()) <= plan.bound, name
    if plan.rescale is not None:
        r = plan.rescale
        m, n = torch.tensor(r.multipliers).view(column), torch.tensor(r.shifts).view(column)
        assert int(m.max()) < 2**15 and int(n.min()) >= 0 and int(n.max()) < 63, name
        y = rshift_even(y * m, n).clamp(-(2 ** (r.bits - 1)), 2 ** (r.bits - 1) - 1)
    return y


def add(a: Tensor, b: Tensor) -> Tensor:
    """A 16-bit add that saturates."""
    return (a + b).clamp(LOW, HIGH)


# tests


@pytest.mark.parametrize("name", BUILD)
def test_the_networks_are_what_they_should_be(name: str) -> None:
    p = prepared(name)
    neurons, projections = p.folded.discovery.neurons, p.folded.discovery.projections
    assert {n.kind for n in neurons.values()} == {"pair", "stream", "bare"}
    for n in neurons:
        rate = float(p.seen.neurons[n].firing_rate().mean())
        assert 0.05 < rate < 0.4, (n, rate)
    chains = {n for n, i in projections.items() if i.role == "chain"}
    assert chains == ({"expand", "depth", "q1", "q2"} if name == "chains" else set())
    bare = next(n for n in neurons.values() if n.kind == "bare")
    assert bare.zero_state == (name == "sdt")


@everywhere
def test_every_neuron_and_projection_is_quantized(name: str, stream: str, bits: int) -> None:
    q = quantized(name, stream, bits)
    d = prepared(name).folded.discovery
    assert set(q.plan.neurons) == set(d.neurons) and set(q.plan.projections) == set(d.projections)
    shells = {n: m for n, m in q.model.named_modules() if isinstance(m, Shell)}
    assert set(shells) == set(d.neurons)
    assert all(isinstance(m.core, IntegerCore) for m in shells.values())
    assert [n for n, m in q.model.named_modules() if isinstance(m, LIF)] == list(d.unused_neurons)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in q.model.modules())
    for n in q.plan.neurons.values():
        assert max(n.bits) <= 16, n.name
    assert abs(q.plan.average_bits() - bits) < 0.25


@everywhere
def test_all_carriers_are_integers(name: str, stream: str, bits: int) -> None:
    q = quantized(name, stream, bits)
    trace, _ = traced(q, images(4, 7))
    for n, p in q.plan.projections.items():
        for x, y in zip(trace.reads[n], trace.writes[n], strict=True):
            written = whole(y, n)
            if p.input is None:
                assert torch.equal(written, projection_in_int64(q, n, x)), n
            if p.role == "stream":
                assert (
                    isinstance(y, StreamTensor) and int(written.min()) >= LOW and int(written.max()) <= HIGH
                )
            if p.role == "chain":
                assert int(written.abs().max()) <= 128
            if stream == "shift" and p.role == "stream":
                assert p.rescale is not None and all(m & (m - 1) == 0 for m in p.rescale.multipliers)


@everywhere
def test_every_neuron_agrees_with_int64(name: str, stream: str, bits: int) -> None:
    q = quantized(name, stream, bits)
    trace, _ = traced(q, images(4, 7))
    for n, plan in q.plan.neurons.items():
        steps = trace.steps[n]
        expected = list(neuron_in_int64(plan, [x for x, *_ in steps]))
        assert len(expected) == 4
        for (_, h, s, v), (a, fired, kept) in zip(steps, expected, strict=True):
            assert torch.equal(whole(h, n), a) and torch.equal(whole(s, n), fired), n
            assert torch.equal(whole(v, n), kept), n
        if plan.zero_state:
            assert all(int(whole(v, n).abs().max()) == 0 for *_, v in steps)


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(x)
    return out


def likeness(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Share of equal decisions, correlation of the logits."""
    same = float((a.argmax(1) == b.argmax(1)).double().mean())
    return same, float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


@functools.cache
def yardstick(name: str) -> tuple[float, float]:
    """The float network against itself with nothing but the first layer's weights rounded to 8 bits: in an
    untrained network the smallest change becomes a cascade, and no quantized one can be expected nearer."""
    model = copy.deepcopy(prepared(name).folded.model)
    stem = next(n for n, p in prepared(name).folded.discovery.projections.items() if p.reads == "data")
    weight: Tensor = model.get_submodule(stem).weight  # type: ignore[assignment]
    step = weight.detach().abs().amax((1, 2, 3), keepdim=True) / 127
    weight.data = (weight.detach() / step).round() * step
    x = images(64, 9)
    return likeness(logits_of(prepared(name).model, x), logits_of(model, x))


@everywhere
def test_agreement_with_the_float_model(name: str, stream: str, bits: int) -> None:
    x = images(64, 9)
    same, like = likeness(logits_of(prepared(name).model, x), logits_of(quantized(name, stream, bits), x))
    best_same, best_like = yardstick(name)
    slack = {8: (0.2, 0.03), 4: (0.6, 0.15)}[bits]
    print(name, stream, bits, same, like, "yardstick", best_same, best_like)
    assert same >= best_same - slack[0] and like >= best_like - slack[1]


@everywhere
def test_every_projection_is_near_its_float_self(name: str, stream: str, bits: int) -> None:
    """The same input, in real numbers, to the folded float projection: free of cascades."""
    q, folded = quantized(name, stream, bits), prepared(name).folded
    trace, _ = traced(q, images(4, 7))
    for n, p in q.plan.projections.items():
        if p.input is not None:
            continue
        x = plain(trace.reads[n][0]).double() * (p.lattice[0] / (p.scales[0] * p.quantum))
        expected = copy.deepcopy(folded.projection(n)).double()(x)
        unit = torch.tensor(p.rescale.scales if p.rescale else p.lattice, dtype=torch.float64)
        unit = unit if p.rescale else unit * 2.0**-p.shift
        found = plain(trace.writes[n][0]).double() * unit.view(-1, *[1] * (-module_axis(q, n) - 1))
        error = float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt())
        allowed = 0.02 if p.bits == 8 else 0.2 if stream == "multiply" else 0.3
        assert error < allowed, (n, error)


def module_axis(q: QuantizedModel, name: str) -> int:
    module = q.model.get_submodule(name)
    assert isinstance(module, QuantProjection)
    return module.axis


@everywhere
def test_every_neuron_is_near_its_float_self(name: str, stream: str, bits: int) -> None:
    """The same currents, in real numbers, to the float neuron: only the state's precision is lost."""
    q, folded = quantized(name, stream, bits), prepared(name).folded
    trace, _ = traced(q, images(4, 7))
    for n, plan in q.plan.neurons.items():
        spec, info = folded.specs[n], folded.discovery.neurons[n]
        scale = torch.ones(plan.channels, dtype=torch.float64)
        if info.stream is not None:  # the stream's own scale, as its writers have it
            writer = q.plan.projections[info.projections[0]].rescale
            assert writer is not None
            scale = torch.tensor(writer.scales, dtype=torch.float64)[info.source_channel]
        elif info.projections:
            source = q.plan.projections[info.projections[0]]
            scale = (torch.tensor(source.lattice, dtype=torch.float64) * 2.0**-source.shift)[
                info.source_channel
            ]
        v: Tensor | float = 0.0
        wrong = total = 0
        for x, h, s, _ in trace.steps[n]:
            current = spec.gain * plain(x).double() * plan.layout.broadcast(scale)
            if total == 0:  # no state yet: the integers are the current itself
                unit = plan.layout.broadcast(torch.tensor(plan.unit, dtype=torch.float64))
                torch.testing.assert_close(h.double() * unit, current, rtol=1e-6, atol=1e-9)
            charged = spec.leak * v + current
            fired = charged >= spec.theta
            v = torch.where(fired, 0.0, charged)
            wrong, total = wrong + int((fired != s.bool()).sum()), total + fired.numel()
        assert wrong / total < (0.02 if bits == 8 or plan.stem else 0.2), (n, wrong / total)


def stream_of(trace: Trace) -> list[Tensor]:
    """The stream of the Spike-Driven Transformer from its writers, add by add, checked where it is read."""

    def wrote(n: str) -> Tensor:
        y = plain(trace.writes[n][0])
        if n == "patch_embed.proj_conv3":
            y = F.max_pool2d(y, 3, 2, 1)
        return whole(y, n).view(4, 4, *y.shape[1:])

    def read(n: str) -> Tensor:
        return torch.stack([plain(x) for x, *_ in trace.steps[n]])

    sums = [wrote("patch_embed.proj_conv3")]
    assert torch.equal(whole(read("patch_embed.proj_lif3"), "lif3"), sums[0])
    sums.append(add(wrote("patch_embed.rpe_conv"), sums[-1]))
    assert torch.equal(whole(read("block.0.attn.shortcut_lif"), "shortcut"), sums[-1])
    sums.append(add(wrote("block.0.attn.proj_conv"), sums[-1]))
    assert torch.equal(whole(read("block.0.mlp.fc1_lif"), "fc1"), sums[-1])
    sums.append(add(wrote("block.0.mlp.fc2_conv"), sums[-1]))
    assert torch.equal(over(read("head_lif"), 1 / 16, "head"), sums[-1].sum((-2, -1)))
    return sums


def test_the_stream_adds_up_in_int64() -> None:
    trace, _ = traced(quantized("sdt", "multiply", 4), images(4, 7))
    top = max(int(x.abs().max()) for x in stream_of(trace))
    assert 8000 < top < HIGH  # twice the range that was seen, and no saturation


@pytest.mark.parametrize("name", BUILD)
def test_streams_saturate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales four times too fine: sums run into the ends of 16 bits, and stay there."""
    right = basis.stream_scales
    monkeypatch.setattr(basis, "stream_scales", lambda *a: {s: u / 4 for s, u in right(*a).items()})
    q = run(prepared(name), RECIPE.replace(weights=8, membrane=8.0, allocation="uniform"))
    trace, out = traced(q, images(4, 7))
    for n, p in q.plan.projections.items():
        if p.role == "stream" and p.input is None:
            assert torch.equal(whole(trace.writes[n][0], n), projection_in_int64(q, n, trace.reads[n][0])), n
    ends = set()
    for n, plan in q.plan.neurons.items():
        if plan.kind == "stream":
            expected = neuron_in_int64(plan, [x for x, *_ in trace.steps[n]])
            for (x, h, s, v), (a, fired, kept) in zip(trace.steps[n], expected, strict=True):
                ends |= {int(plain(x).min()), int(plain(x).max())}
                assert torch.equal(whole(h, n), a) and torch.equal(whole(s, n), fired)
                assert torch.equal(whole(v, n), kept)
    assert min(ends) >= LOW and max(ends) == HIGH
    if name == "sdt":
        assert min(ends) == LOW
        saturated = [int(((x == LOW) | (x == HIGH)).sum()) for x in stream_of(trace)]
        assert saturated[-1] > 100 and saturated[-1] > saturated[0]
    assert bool(torch.isfinite(out).all())


def test_adds_of_a_stream_saturate_however_they_are_written() -> None:
    a = torch.tensor([30000.0, -30000.0, 5.0]).as_subclass(StreamTensor)
    b = torch.tensor([10000.0, -10000.0, 7.0]).as_subclass(StreamTensor)
    expected = [float(HIGH), float(LOW), 12.0]
    for y in (a + b, torch.add(a, b), a.add(b), b + a, sum([a, b]), a + plain(b), plain(a) + b):
        assert isinstance(y, StreamTensor) and plain(y).tolist() == expected
    c = a.clone()
    c += b
    assert plain(c).tolist() == expected
    d = a.clone()
    d.add_(b)
    assert plain(d).tolist() == expected
    assert plain((a - -b).view(3, 1).flatten()).tolist() == expected
    assert isinstance(a.view(3, 1).transpose(0, 1), StreamTensor)


def test_a_stream_passes_gradients_where_it_does_not_saturate() -> None:
    x = torch.tensor([30000.0, 5.0], requires_grad=True)
    y = x.as_subclass(StreamTensor) + torch.tensor([10000.0, 7.0])
    plain(y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("size", [7, 14, 56])
def test_sums_of_a_stream_are_exact(size: int) -> None:
    """A mean over 196 positions is not dyadic and a sum over 3136 does not fit float32; both come back."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(HIGH - 40, HIGH + 1, (20, 30, size, size), generator=g).double()
    stream = x.float().as_subclass(StreamTensor)
    n = size * size
    for mean in (
        stream.mean((-2, -1)),
        F.adaptive_avg_pool2d(stream, 1).flatten(1),
        F.avg_pool2d(stream, size).flatten(1),
    ):
        assert torch.equal(counted(plain(mean), 1 / (1 / n)).double(), x.sum((-2, -1)))
    assert torch.equal(plain(stream.sum((-2, -1))).double(), x.sum((-2, -1)))


def test_means_of_counts_are_exact() -> None:
    """Spike counts stay in float32: one rounding, which goes away up to 2^23."""
    x = torch.arange(0, 2**23, 997).double()
    for n in (3, 49, 196):
        assert torch.equal(counted((x / n).float(), 1 / (1 / n)).double(), x)


def test_dead_channels_of_a_writer() -> None:
    """Residual branches often start with gains of zero: such a channel writes its bias and nothing else."""
    model = Chains()
    calibrated(model)
    with torch.no_grad():
        model.bn2.weight[:3] = 0.0
        model.proj_bn.weight[:] = 0.0
        model.bn1.weight[:5] = 1e-12
    for stream in ("multiply", "shift"):
        recipe = RECIPE.replace(stream=stream, allocation="uniform")
        q = run(pipeline.prepare(model, images(32, 1), recipe), recipe)
        trace, out = traced(q, images(4, 7))
        for n in ("expand", "point", "proj"):
            assert torch.equal(whole(trace.writes[n][0], n), projection_in_int64(q, n, trace.reads[n][0]))
        assert bool(torch.isfinite(out).all())


class Open(Chains):
    """Also returns its stream, averaged over time, and what goes from one projection to the next."""

    def forward(self, x: Tensor) -> Any:
        x = per_step(self.stem_bn, per_step(self.stem, x.unsqueeze(0).repeat(self.T, 1, 1, 1, 1)))
        y = per_step(self.bn1, per_step(self.expand, self.lif1(x)))
        x = x + per_step(self.bn2, per_step(self.point, per_step(self.depth, y)))
        s = self.lif2(x)
        return self.head(s.mean((-2, -1))).mean(0), x.mean(0), y[0]


def test_streams_and_chains_as_outputs_are_real_numbers() -> None:
    model = calibrated(Open())
    recipe = RECIPE.replace(weights=8, membrane=8.0, allocation="uniform")
    q = run(pipeline.prepare(model, images(32, 1), recipe), recipe)
    x = images(8, 7)
    with torch.no_grad():
        expected, found = model(x), q(x)
    for a, b in zip(expected, found, strict=True):
        assert a.shape == b.shape and type(b) is Tensor
        assert float((a - b).square().mean().sqrt() / a.square().mean().sqrt()) < 0.2


@pytest.mark.parametrize("coupling", ["reuse", "independent", "layerwise", "flowq", "none"])
def test_other_couplings_run_on_streams(coupling: str) -> None:
    recipe = RECIPE.replace(coupling=coupling, allocation="uniform", weights=8, membrane=8.0)
    q = run(prepared("chains"), recipe)
    trace, out = traced(q, images(4, 7))
    assert bool(torch.isfinite(out).all())
    for n, plan in q.plan.neurons.items():
        expected = neuron_in_int64(plan, [x for x, *_ in trace.steps[n]])
        for (_, _, s, v), (_, fired, kept) in zip(trace.steps[n], expected, strict=True):
            assert torch.equal(whole(s, n), fired) and torch.equal(whole(v, n), kept), n

"""Discovery on small networks, each with what it must find written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptq4snn
from ptq4snn.discovery.discover import Discovery, discover
from ptq4snn.discovery.proof import verify
from ptq4snn.discovery.record import record
from ptq4snn.errors import UnsupportedModel, UnsupportedOperation
from ptq4snn.models.neuron import IF, LIF

T, B = 3, 2


class Net(nn.Module):
    """A network written as modules and a function of them."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.run = forward
        for name, m in modules.items():
            self.add_module(name, m)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def conv(cin: int = 2, cout: int = 4, kernel: int = 3, **kwargs: Any) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, padding=kernel // 2, **kwargs)


def norm(channels: int = 4, positive: bool = True) -> nn.BatchNorm2d:
    bn = nn.BatchNorm2d(channels)
    assert bn.running_mean is not None and bn.running_var is not None
    nn.init.uniform_(bn.weight, 0.5, 1.5)
    if not positive:
        bn.weight.data[1] = -0.7
    nn.init.normal_(bn.bias, 0.2, 0.3)
    nn.init.normal_(bn.running_mean, 0.0, 0.3)
    nn.init.uniform_(bn.running_var, 0.1, 0.5)
    return bn


def fold_time(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = f(x.flatten(0, 1))
    return y.view(*x.shape[:2], *y.shape[1:])


def repeat(x: Tensor) -> Tensor:
    return x.unsqueeze(0).repeat(T, *[1] * x.dim())


def images(channels: int = 2, size: int = 8) -> Tensor:
    return torch.randn(B, channels, size, size, generator=torch.Generator().manual_seed(0))


def found(net: nn.Module, x: Tensor | None = None) -> Discovery:
    """Discover and prove that folding changes no spike."""
    x = images() if x is None else x
    d = discover(copy.deepcopy(net), x)
    verify(net, d, x)
    return d


def names(d: Discovery, projection: str) -> list[str]:
    return [n.name for n in d.projections[projection].norms]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def head(channels: int = 4) -> nn.Linear:
    return nn.Linear(channels, 3)


def classify(m: Any, s: Tensor) -> Tensor:
    """Mean over positions, classifier, mean over time."""
    y: Tensor = m.fc(s.mean((-2, -1))).mean(0)
    return y


# pairs and BatchNorm


def test_conv_bn_lif() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(fold_time(m.bn, fold_time(m.conv, repeat(x))))),
        conv=conv(), bn=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    n, p, fc = d.neurons["lif"], d.projections["conv"], d.projections["fc"]
    assert (n.kind, n.projections, n.norms, n.steps, n.stem, n.last) == (
        "pair",
        ("conv",),
        ("bn",),
        T,
        True,
        True,
    )
    assert (n.layout.shape, n.layout.dims, n.factor, n.window) == ((4, 8, 8), (0,), 1.0, 1.0)
    assert n.source_channel.tolist() == [0, 1, 2, 3] and n.carries_state
    assert (p.role, p.reads, p.feeds, p.macs) == ("pair", "data", ("lif",), T * 4 * 64 * 18)
    assert (fc.role, fc.reads, fc.factor, fc.lo, fc.hi) == ("output", "count", 1 / 64, 0.0, 64.0)
    assert (d.outputs[0].projection, d.outputs[0].axis) == ("fc", -1)
    assert d.unused_neurons == () and d.unused_projections == () and not d.transformer


def test_chained_norms() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn2(m.bn1(m.conv(x)))))),
        conv=conv(bias=False), bn1=norm(positive=False), bn2=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert names(found(net), "conv") == ["bn1", "bn2"]


def test_the_same_norm_twice_is_folded_twice() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn(m.bn(m.conv(x)))))),
        conv=conv(), bn=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert names(found(net), "conv") == ["bn", "bn"]


def after_pool(positive: bool) -> Net:
    return Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn(F.max_pool2d(m.conv(x), 2))))),
        conv=conv(), bn=norm(positive=positive), lif=LIF(), fc=head(),
    )  # fmt: skip


def test_norm_behind_a_max_pool() -> None:
    d = found(after_pool(positive=True))
    assert d.projections["conv"].norms[0].after_max and d.neurons["lif"].ops == ("max_pool",)


def test_negative_gain_behind_a_max_pool() -> None:
    """`found` folds and compares spikes in float64: the sign has to stay behind the pool."""
    d = found(after_pool(positive=False))
    assert d.projections["conv"].norms[0].after_max


def test_negative_gain_behind_a_max_pool_with_another_norm_behind() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn2(m.bn(F.max_pool2d(m.conv(x), 2)))))),
        conv=conv(), bn=norm(positive=False), bn2=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedOperation, match=r"'bn' behind a max-pool has negative gains in channels \[1\]"
    ):
        found(net)


def test_norm_between_conv_and_max_pool_may_be_negative() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(F.max_pool2d(m.bn(m.conv(x)), 2)))),
        conv=conv(), bn=norm(positive=False), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert not found(net).projections["conv"].norms[0].after_max


@pytest.mark.parametrize(
    ("between", "shape", "factor", "window", "op"),
    [
        (lambda x: F.avg_pool2d(x, 2), (4, 4, 4), 1 / 4, 4.0, "avg_pool2d"),
        (lambda x: F.adaptive_avg_pool2d(x, 2), (4, 2, 2), 1 / 16, 16.0, "_adaptive_avg_pool2d"),
        (lambda x: F.adaptive_avg_pool2d(x, 1), (4, 1, 1), 1 / 64, 64.0, "mean"),
        (lambda x: F.interpolate(x, scale_factor=2), (4, 16, 16), 1.0, 1.0, None),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (4, 16, 16), 1 / 16, 16.0, "bilinear"),
        (lambda x: F.max_pool2d(x, 3, 2, 1), (4, 4, 4), 1.0, 1.0, "max_pool"),
        (lambda x: x.sum((-2, -1)), (4,), 1.0, 64.0, "sum"),
        (lambda x: x.mean(-1) * 0.5, (4, 8), 1 / 16, 8.0, "mean"),
        (lambda x: F.pad(x, (1, 1, 1, 1)), (4, 10, 10), 1.0, 1.0, "pad"),
    ],
)  # fmt: skip
def test_between_projection_and_neuron(
    between: Callable[[Tensor], Tensor], shape: tuple[int, ...], factor: float, window: float, op: str | None
) -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(between(m.bn(m.conv(x))))).flatten(2).mean(-1)[..., None]).mean(0),
        conv=conv(), bn=norm(), lif=LIF(), fc=nn.Linear(1, 3),
    )  # fmt: skip
    n = found(net).neurons["lif"]
    assert (n.kind, n.layout.shape, n.layout.dims, n.factor, n.window) == (
        "pair",
        shape,
        (0,),
        factor,
        window,
    )
    assert (op in n.ops) if op else n.ops == ()


def test_norm_behind_an_average_and_a_scale() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn(0.5 * F.avg_pool2d(m.conv(x), 2))))),
        conv=conv(), bn=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert found(net).projections["conv"].norms[0].constant == 0.5


@pytest.mark.parametrize("pad", [lambda x: F.pad(x, (1, 1, 1, 1)), lambda x: F.avg_pool2d(x, 3, 1, 1)])
def test_norm_behind_a_border_of_zeros(pad: Callable[[Tensor], Tensor]) -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.bn(pad(m.conv(x)))))),
        conv=conv(), bn=norm(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match=r"'lif'.*'bn' comes behind .* cannot be folded"):
        found(net)


def test_norm_of_a_join_and_of_a_part() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.whole(torch.cat([m.part(m.a(x)), m.b(x)], 1))))),
        a=conv(cout=3), b=conv(cout=5), part=norm(3), whole=norm(8), lif=LIF(), fc=head(8),
    )  # fmt: skip
    d = found(net)
    assert names(d, "a") == ["part", "whole"] and names(d, "b") == ["whole"]
    assert d.projections["b"].norms[0].channels == (3, 4, 5, 6, 7)
    n = d.neurons["lif"]
    assert (n.kind, n.projections) == ("pair", ("a", "b"))
    assert n.source_projection.tolist() == [0] * 3 + [1] * 5
    assert n.source_channel.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]


def test_norm_of_flattened_features_cannot_be_folded() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(m.bn(m.conv(x).flatten(1))))).mean(0),
        conv=conv(), bn=nn.BatchNorm1d(256), lif=LIF(), fc=nn.Linear(256, 3),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedOperation, match="'bn' normalises one channel of its projection by several"
    ):
        found(net)


def test_readers_behind_different_norms() -> None:
    net = Net(
        lambda m, x: classify(m, m.a(repeat(m.bn(m.conv(x)))) + m.b(repeat(m.conv(x)))),
        conv=conv(), bn=norm(), a=LIF(), b=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match=r"'conv' is read behind different BatchNorms \(bn\)"):
        found(net)


def test_norm_of_the_input_stays() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(m.bn(x))))),
        conv=conv(), bn=norm(2), lif=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    assert d.norms == () and d.projections["conv"].reads == "data"


# how programs are written


def residual(m: Any, x: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    s = m.lif1(repeat(m.conv1(x)))
    return classify(m, join(m.lif2(fold_time(m.conv2, s)), s))


def inplace(a: Tensor, b: Tensor) -> Tensor:
    a += b
    return a


@pytest.mark.parametrize(
    ("join", "lo", "hi"),
    [
        (lambda a, b: a + b, 0, 2),
        (inplace, 0, 2),
        (lambda a, b: torch.add(a, b, alpha=2), 0, 3),
        (lambda a, b: a * b, 0, 1),
        (lambda a, b: b * (1 - a), 0, 1),
        (lambda a, b: a - b, -1, 1),
        (lambda a, b: torch.clamp(a + b, max=1.0), 0, 1),
        (lambda a, b: torch.maximum(a, b), 0, 1),
        (lambda a, b: ((a + b) > 1).to(a.dtype), 0, 1),
        (lambda a, b: a if float(a.sum()) < 0 else a + b + b, 0, 3),
    ],
)
def test_spikes_are_joined(join: Callable[[Tensor, Tensor], Tensor], lo: int, hi: int) -> None:
    net = Net(
        lambda m, x: residual(m, x, join),
        conv1=conv(), lif1=LIF(), conv2=conv(4, 4), lif2=LIF(), fc=head(),
    )  # fmt: skip
    p = found(net).projections["fc"]
    assert (p.factor, p.lo, p.hi) == (1 / 64, 64.0 * lo, 64.0 * hi)
    assert set(p.spike_sources) == {"lif1", "lif2"}


def test_buffers_filled_step_by_step() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        currents = torch.empty(T, B, 4, 8, 8, dtype=x.dtype)
        for t in range(T):
            currents[t] = m.conv(x)
        spikes = m.lif(currents)
        counts = torch.zeros_like(spikes).transpose(0, 1)
        for t in range(T):
            counts[:, t] = spikes[t]
        counts[:, 0, 1:3] += spikes[0, :, 1:3]
        return m.fc(counts.mean((-2, -1))).mean(1)

    d = found(Net(forward, conv=conv(), lif=LIF(), fc=head()))
    assert (d.neurons["lif"].kind, d.neurons["lif"].layout.dims) == ("pair", (0,))
    assert (d.projections["fc"].lo, d.projections["fc"].hi, d.projections["conv"].macs) == (
        0,
        128,
        T * 64 * 72,
    )


def test_a_buffer_with_a_hole() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        currents = torch.zeros(T, B, 4, 8, 8, dtype=x.dtype)
        currents[0] = m.conv(x)
        return classify(m, m.lif(currents))

    with pytest.raises(UnsupportedOperation, match="'lif' reads a buffer of which a part was never written"):
        found(Net(forward, conv=conv(), lif=LIF(), fc=head()))


def test_a_buffer_of_other_values() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        out = torch.full((T, B, 4), 3.0, dtype=x.dtype)
        out[1] = m.lif(repeat(m.conv(x)))[1].mean((-2, -1))
        return m.fc(out).mean(0)

    p = found(Net(forward, conv=conv(), lif=LIF(), fc=head())).projections["fc"]
    assert (p.factor, p.lo, p.hi) == (1 / 64, 0, 192)


def test_a_view_left_behind_by_a_write_is_refused() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        s = m.lif(repeat(m.conv(x)))
        flat = s.flatten(0, 1)
        s += 1
        return m.fc(flat.mean((-2, -1)))

    with pytest.raises(UnsupportedOperation, match=r"shares memory with one that aten\.add_"):
        found(Net(forward, conv=conv(), lif=LIF(), fc=head()))


def test_reused_projection_and_norm() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        s = m.lif1(repeat(m.stem(x)))
        s = m.lif2(fold_time(m.bn, fold_time(m.conv, s)))
        return classify(m, m.lif3(fold_time(m.bn, fold_time(m.conv, s))))

    net = Net(forward, stem=conv(), lif1=LIF(), conv=conv(4, 4), bn=norm(), lif2=LIF(), lif3=LIF(), fc=head())
    d = found(net)
    p = d.projections["conv"]
    assert (p.feeds, p.spike_sources, p.macs) == (("lif2", "lif3"), ("lif1", "lif2"), 2 * T * 4 * 64 * 36)
    assert names(d, "conv") == ["bn"] and d.neurons["lif3"].kind == "pair"


def test_one_neuron_behind_two_projections_is_a_stream() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.a(x))) + m.lif(repeat(m.b(x)))),
        a=conv(), b=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    n = d.neurons["lif"]
    assert (n.kind, n.projections, n.stream, n.steps) == ("stream", ("a", "b"), 0, 2 * T)


def test_one_neuron_behind_different_channels_is_refused() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.a(x))) + m.lif(repeat(m.a(x).flip(1)))),
        a=conv(), b=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    d = discover(net, images())  # the same projection: one scale per channel, read in two orders
    assert d.neurons["lif"].kind == "pair"
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.a(x))) + m.lif(repeat(m.b(x).flip(1)))),
        a=conv(), b=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedOperation, match="'lif' is called behind projections whose channels do not match"
    ):
        discover(net, images())


def test_fused_qkv_and_heads() -> None:
    """[T, B, N, 3 * 8] -> three neurons on [T, B, heads, N, d]; bare neurons behind them."""

    def forward(m: Any, x: Tensor) -> Any:
        s = m.lif(m.embed(repeat(x.flatten(2).transpose(1, 2))))  # [T, B, N, 8]
        q, k, v = (part.reshape(T, B, 16, 2, 4).permute(0, 1, 3, 2, 4) for part in m.qkv(s).chunk(3, dim=-1))
        q, k, v = m.q(q), m.k(k), m.v(v)
        y = m.attn((q @ k.transpose(-2, -1)) @ v * 0.125)
        y = y.transpose(2, 3).reshape(T, B, 16, 8)
        return m.fc(y.mean(0).mean(1))

    net = Net(
        forward, embed=nn.Linear(2, 8), lif=LIF(), qkv=nn.Linear(8, 24), q=LIF(), k=LIF(), v=LIF(),
        attn=LIF(v_threshold=0.5), fc=head(8),
    )  # fmt: skip
    d = found(net, images(2, 4))
    for i, name in enumerate("qkv"):
        n = d.neurons[name]
        assert (n.kind, n.projections) == ("pair", ("qkv",))
        assert (n.layout.shape, n.layout.dims) == ((2, 16, 4), (0, 2))
        assert n.source_channel.tolist() == list(range(8 * i, 8 * i + 8))
    attn = d.neurons["attn"]
    assert (attn.kind, attn.factor, attn.lo, attn.hi) == ("bare", 0.125, 0, 64)
    assert attn.layout.dims == (0, 2) and attn.spike_sources == ("k", "q", "v") and not attn.zero_state
    fc = d.projections["fc"]
    assert fc.over_time and fc.factor == 1 / (T * 16) and fc.hi == T * 16
    assert d.transformer


def test_parts_of_a_fused_projection_with_norms_of_their_own() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        a, b = m.conv(x).chunk(2, 1)
        return classify(m, m.lif1(repeat(m.bn1(a))) + m.lif2(repeat(b)))

    d = found(Net(forward, conv=conv(cout=8), bn1=norm(), lif1=LIF(), lif2=LIF(), fc=head()))
    (bn,) = d.projections["conv"].norms
    assert bn.channels == (0, 1, 2, 3, -1, -1, -1, -1)


def test_channels_shuffled_by_an_index() -> None:
    order = torch.tensor([2, 0, 3, 1])
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(x)[:, order]))),
        conv=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert found(net).neurons["lif"].source_channel.tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize(
    ("theta", "reset", "factor", "zero"),
    [(0.5, 0.0, 1.0, True), (0.5, 0.0, 0.5, False), (0.6, 0.0, 1.0, False), (0.5, None, 1.0, False),
     (0.5, 0.0, 2.0, True), (0.5, 0.0, -1.0, False)],
)  # fmt: skip
def test_zero_state(theta: float, reset: float | None, factor: float, zero: bool) -> None:
    """gain 1/2: a count of 1 fires at once where factor / 2 >= theta, and a hard reset leaves nothing."""

    def forward(m: Any, x: Tensor) -> Any:
        k, v = m.k(repeat(m.a(x))), m.v(repeat(m.b(x)))
        return m.fc(m.kv((k * v).sum((-2, -1)) * factor)).mean(0)

    net = Net(
        forward, a=conv(), b=conv(), k=LIF(), v=LIF(), kv=LIF(v_threshold=theta, v_reset=reset), fc=head()
    )
    n = found(net).neurons["kv"]
    assert (n.kind, n.zero_state, n.carries_state, n.factor) == ("bare", zero, not zero, abs(factor))
    assert (n.lo, n.hi) == ((0, 64) if factor > 0 else (-64, 0))


# streams and chains


def test_membrane_shortcut() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        x = repeat(m.stem(x))
        x = x + fold_time(m.bn1, fold_time(m.conv1, m.lif1(x)))
        x += fold_time(m.conv2, m.lif2(x))
        return m.fc(m.last(x.mean((-2, -1)))).mean(0)

    net = Net(
        forward, stem=conv(), lif1=LIF(), conv1=conv(4, 4), bn1=norm(), lif2=LIF(), conv2=conv(4, 4),
        last=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    assert [(n.kind, n.projections, n.stream) for n in d.neurons.values()] == [
        ("pair", ("stem",), 0),
        ("stream", ("stem", "conv1"), 0),
        ("stream", ("stem", "conv1", "conv2"), 0),
    ]
    assert {p.name: p.role for p in d.projections.values() if p.role != "output"} == dict.fromkeys(
        ["stem", "conv1", "conv2"], "stream"
    )
    last = d.neurons["last"]
    assert (last.factor, last.window, last.span) == (1 / 64, 192.0, 1.0)
    assert d.neurons["lif1"].stem and not last.stem


def test_two_streams_are_kept_apart() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        s = m.lif1(repeat(m.a(x) + m.b(x)))
        return classify(m, m.lif2(fold_time(m.c, s) + fold_time(m.d, s)))

    net = Net(forward, a=conv(), b=conv(), lif1=LIF(), c=conv(4, 4), d=conv(4, 4, 1), lif2=LIF(), fc=head())
    d = found(net)
    assert [d.projections[n].stream for n in "abcd"] == [0, 0, 1, 1]


def test_a_sum_of_different_channels() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.a(x) + m.b(x).flip(1)))),
        a=conv(), b=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match="a sum adds different channels of 'a', 'b' to each other"):
        discover(net, images())


def test_a_sum_over_positions_widens_the_stream() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat((m.a(x) + m.b(x)).sum((-2, -1)) * 0.5))).mean(0),
        a=conv(), b=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    n = found(net).neurons["lif"]
    assert (n.factor, n.span) == (0.5, 32.0)  # |carrier| up to 32 full ranges, in steps of a half


def test_a_stream_as_an_output() -> None:
    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y = repeat(m.a(x) + m.b(x))
        return classify(m, m.lif(y)), y.mean(0)

    d = found(Net(forward, a=conv(), b=conv(), lif=LIF(), fc=head()))
    assert [(o.projection, o.axis) for o in d.outputs] == [("fc", -1), ("a", -3)]


def test_chain() -> None:
    """A separable convolution: 1x1 -> BN -> depthwise 3x3 -> 1x1 -> BN -> neuron."""

    def forward(m: Any, x: Tensor) -> Any:
        s = m.lif1(repeat(m.stem(x)))
        y = s.flatten(0, 1)
        y = m.bn2(m.point(m.depth(m.bn1(m.expand(y)))))
        return classify(m, m.lif2(y.view(T, B, 4, 8, 8)))

    net = Net(
        forward, stem=conv(), lif1=LIF(), expand=conv(4, 8, 1), bn1=norm(8), depth=conv(8, 8, groups=8),
        point=conv(8, 4, 1), bn2=norm(), lif2=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    roles = {n: (p.role, p.reads, p.chained_from) for n, p in d.projections.items()}
    assert roles["expand"] == ("chain", "count", ())
    assert roles["depth"] == ("chain", "chain", ("expand",))
    assert roles["point"] == ("pair", "chain", ("depth",))
    assert names(d, "expand") == ["bn1"] and names(d, "point") == ["bn2"] and names(d, "depth") == []
    assert d.neurons["lif2"].projections == ("point",)
    assert d.projections["depth"].macs == T * 8 * 64 * 9


def test_a_chain_that_also_feeds_a_neuron() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif1(repeat(m.a(x))) + m.lif2(repeat(m.b(m.a(x))))),
        a=conv(), b=conv(4, 4), lif1=LIF(), lif2=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    assert (d.projections["a"].role, d.projections["a"].stream) == ("stream", 0)
    assert (d.projections["b"].role, d.projections["b"].reads) == ("pair", "stream")
    assert d.neurons["lif1"].stream == 0 and d.neurons["lif2"].stream is None


def test_a_projection_that_reads_a_sum() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.c(m.a(x) + m.b(x))))),
        a=conv(), b=conv(), c=conv(4, 4), lif=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    assert {n: p.stream for n, p in d.projections.items()} == {"a": 0, "b": 0, "c": None, "fc": None}
    c = d.projections["c"]
    assert (c.reads, c.source_stream, c.source_channels) == ("stream", 0, (0, 1, 2, 3))


# time and outputs


def test_mean_over_time_in_front_of_the_classifier() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(m.conv(x))).mean(0).mean((-2, -1))),
        conv=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    p = found(net).projections["fc"]
    assert p.over_time and p.factor == pytest.approx(1 / (64 * T)) and p.hi == 64 * T
    net.run = lambda m, x: m.fc(m.lif(repeat(m.conv(x))).mean((-2, -1)).sum(0))
    assert not found(net).projections["fc"].over_time


def test_a_neuron_that_runs_one_step_carries_no_state() -> None:
    net = Net(
        lambda m, x: m.fc(m.one(m.conv2(m.lif(repeat(m.conv(x))).mean(0)).unsqueeze(0)).mean((-2, -1))[0]),
        conv=conv(), lif=LIF(), conv2=conv(4, 4), one=LIF(), fc=head(),
    )  # fmt: skip
    d = found(net)
    assert d.neurons["one"].steps == 1 and not d.neurons["one"].carries_state
    assert d.projections["conv2"].over_time and d.neurons["lif"].carries_state


def test_softmax_behind_the_classifier() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(x)))).softmax(-1), conv=conv(), lif=LIF(), fc=head()
    )
    d = found(net)
    assert not d.projections["fc"].decode and d.outputs[0].projection == "fc"
    assert d.outputs[0].then == (("softmax", -1),)


def test_a_part_of_the_classifier_is_decoded_where_it_is_made() -> None:
    net = Net(lambda m, x: classify(m, m.lif(repeat(m.conv(x))))[:, 1:], conv=conv(), lif=LIF(), fc=head())
    d = found(net)
    assert d.projections["fc"].decode and d.outputs[0].projection is None


def test_softmax_of_a_current_that_goes_on() -> None:
    net = Net(
        lambda m, x: (classify(m, m.lif(repeat(m.conv(x)))), m.conv(x).softmax(1)),
        conv=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match="'conv' goes on inside the network and also leaves it"):
        discover(net, images())


def test_unused_modules_are_listed() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(x)))),
        conv=conv(), lif=LIF(), fc=head(), spare=conv(), spare_lif=LIF(), spare_bn=norm(),
    )  # fmt: skip
    d = found(net)
    assert (d.unused_neurons, d.unused_projections) == (("spare_lif",), ("spare",))


def test_random_encoders_fold() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(fold_time(m.conv, torch.bernoulli(repeat(x).sigmoid())))),
        conv=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    assert found(net).projections["conv"].reads == "data"


class Thresholds(LIF):
    """A threshold for every channel."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.register_buffer("thresholds", theta)

    @property
    def theta(self) -> Any:
        return self.thresholds


def test_thresholds_per_channel() -> None:
    theta = torch.tensor([0.3, 0.6, 0.9, 1.2]).view(4, 1, 1)
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(x)))), conv=conv(), lif=Thresholds(theta), fc=head()
    )
    d = found(net)
    torch.testing.assert_close(d.specs["lif"].theta, theta.double())
    assert d.neurons["lif"].layout.dims == (0,)


# errors


def test_functional_convolution() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 2, 3, 3))
            self.lif, self.fc = LIF(), head()

        def forward(self, x: Tensor) -> Any:
            return classify(self, self.lif(repeat(F.conv2d(x, self.kernel, padding=1))))

    d = discover(Functional(), images())
    assert d.neurons["lif"].projections == ("plain",) and d.edits[0].parameters == ("kernel",)


def test_functional_linear_on_spikes() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif2(F.linear(m.lif1(repeat(m.conv(x))).mean((-2, -1)), m.w.weight * 2))).mean(0),
        conv=conv(), lif1=LIF(), w=nn.Linear(4, 4), lif2=LIF(), fc=head(),
    )  # fmt: skip
    d = discover(net, images())
    assert d.neurons["lif2"].projections == ("plain",) and d.edits[0].parameters == ("w.weight",)
    assert torch.equal(net.plain.weight, net.w.weight * 2)  # type: ignore[union-attr,operator,arg-type]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.scores(x).softmax(-1)


def test_softmax_in_front_of_a_neuron() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif2(m.attn(m.lif1(repeat(m.conv(x))).mean((-2, -1))))).mean(0),
        conv=conv(), lif1=LIF(), attn=Attention(), lif2=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedOperation, match=r"the neuron 'lif2' .*: softmax in 'attn' has no integer meaning"
    ):
        discover(net, images())


def test_layer_norm_in_the_way() -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(m.ln(m.conv(x).mean((-2, -1)))))).mean(0),
        conv=conv(), ln=nn.LayerNorm(4), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedOperation, match=r"the neuron 'lif' .*: native_layer_norm in 'ln' has no integer"
    ):
        discover(net, images())


@pytest.mark.parametrize(
    ("between", "why"),
    [
        (lambda x: x - x.flip(1), "sub multiplies currents by -1"),
        (lambda x: x + torch.rand(8, 8, dtype=x.dtype), "add adds a constant"),
        (lambda x: x * torch.rand(4, 1, 1, dtype=x.dtype), "mul multiplies by a tensor of constants"),
        (lambda x: x.clamp(-1, 1), "clamp clips currents"),
        (lambda x: x.amax(1, keepdim=True), "amax takes a maximum over several channels"),
        (lambda x: x.mean(1, keepdim=True), "mean mixes channels"),
        (
            lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7),
            "avg_pool2d divides by a number of its own",
        ),
        (
            lambda x: F.interpolate(x, size=(11, 11), mode="bilinear"),
            "upsample_bilinear2d resizes bilinearly by another ratio",
        ),
        (lambda x: torch.cat([x, torch.zeros_like(x)], 1), "cat joins currents with constants"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "div divides by a tensor or with rounding"),
        (lambda x: x * torch.rand(8, 1, dtype=x.dtype), "mul multiplies by a tensor of constants"),
    ],
)
def test_operations_that_integers_cannot_follow(between: Callable[[Tensor], Tensor], why: str) -> None:
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(between(m.conv(x)))).mean((-2, -1)).mean(-1, keepdim=True)),
        conv=conv(), lif=LIF(), fc=nn.Linear(1, 3),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match=f"the neuron 'lif' is fed through .*: {why}"):
        discover(net, images())


def test_neuron_on_the_input() -> None:
    net = Net(lambda m, x: m.fc(m.lif(repeat(x)).mean((-2, -1))).mean(0), lif=LIF(), fc=head(2))
    with pytest.raises(UnsupportedOperation, match="the neuron 'lif' is fed by the input itself"):
        discover(net, images())


def test_no_neurons() -> None:
    with pytest.raises(UnsupportedModel, match="no spiking neurons"):
        discover(Net(lambda m, x: m.fc(m.conv(x).mean((-2, -1))), conv=conv(), fc=head()), images())


def test_no_neuron_runs() -> None:
    net = Net(lambda m, x: m.fc(m.conv(x).mean((-2, -1))), conv=conv(), fc=head(), lif=LIF())
    with pytest.raises(UnsupportedModel, match="no spiking neuron ran"):
        discover(net, images())


def test_transposed_convolution() -> None:
    net = Net(lambda m, x: m.lif(m.up(x)[None]), up=nn.ConvTranspose2d(2, 4, 2), lif=IF())
    assert ptq4snn.inspect(net, images()).neurons["lif"].projections == ("up.plain",)
    net.get_submodule("up").register_forward_hook(lambda _m, _a, out: out * 2)
    with pytest.raises(
        UnsupportedOperation, match="'up' is a ConvTranspose2d with a forward or hooks of its"
    ):
        ptq4snn.inspect(net, images())


def test_states_of_different_shapes() -> None:
    net = Net(
        lambda m, x: classify(m, m.lif(repeat(m.conv(x)))) + classify(m, m.lif(repeat(m.conv(x)[..., :4]))),
        conv=conv(), lif=LIF(), fc=head(),
    )  # fmt: skip
    with pytest.raises(UnsupportedOperation, match="'lif' is called with states of different shapes"):
        discover(net, images())


# one dimension and three


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    layer = {1: nn.Conv1d, 3: nn.Conv3d}[rank]
    pool = {1: F.max_pool1d, 3: F.max_pool3d}[rank]
    average = {1: F.avg_pool1d, 3: F.avg_pool3d}[rank]
    bn = {1: nn.BatchNorm1d, 3: nn.BatchNorm3d}[rank](4)
    net = Net(
        lambda m, x: m.fc(m.lif(repeat(average(pool(m.bn(m.conv(x)), 2), 2))).flatten(3).mean(-1)).mean(0),
        conv=layer(2, 4, 3, padding=1), bn=bn, lif=LIF(), fc=head(),
    )  # fmt: skip
    n = found(net, torch.randn(B, 2, *[8] * rank)).neurons["lif"]
    assert (n.layout.shape, n.layout.dims, n.factor) == ((4, *[2] * rank), (0,), 0.5**rank)


def test_the_graph_is_json() -> None:
    import json

    net = Net(lambda m, x: classify(m, m.lif(repeat(m.conv(x)))), conv=conv(), lif=LIF(), fc=head())
    d = discover(net, images())
    text = json.loads(json.dumps(d.graph.to_dict()))
    assert [n["target"] for n in text["nodes"] if n["kind"] != "op"] == ["conv", "lif", "fc"]
    assert json.loads(json.dumps(d.to_dict()))["neurons"][0]["kind"] == "pair"


def test_a_module_copied_inside_a_recorded_pass_does_not_copy_the_recorder() -> None:
    """The recorder's references to storages would be freed twice."""
    carried: list[tuple[Any, Any]] = []

    class Copying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            twin = copy.deepcopy(self.inner)
            for name in ("_forward_pre_hooks", "_forward_hooks"):
                hooks = (getattr(module, name).values() for module in (self.inner, twin))
                carried.extend(zip(*hooks, strict=True))
            y: Tensor = self.inner(x)
            return y

    graph, _ = record(Copying(), torch.ones(2, 3), lambda name, module: "projection" if name else None)
    assert [n.target for n in graph.nodes if n.kind == "projection"] == ["inner"]
    assert len(carried) == 2 and all(mine is theirs for mine, theirs in carried)

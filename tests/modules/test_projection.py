"""QuantProjection against integer loops: convolutions, the border map, rescales, means, bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ptq4snn.modules import projection
from ptq4snn.modules.carrier import Clock, StreamTensor
from ptq4snn.modules.projection import QuantProjection
from ptq4snn.network.plan import InputPlan, ProjectionPlan, RescalePlan


def make(
    module: nn.Module, bits: int | None = 4, shift: int = 3, seed: int = 0, steps: int = 4, **more: Any
) -> tuple[QuantProjection, Tensor, Tensor]:
    """The module with random integer weights and biases, and these integers."""
    g = torch.Generator().manual_seed(seed)
    top = 2 ** ((bits or 8) - 1)
    weight = torch.randint(-top, top, module.weight.shape, generator=g)  # type: ignore[arg-type]
    bias = torch.randint(-500, 500, (len(weight),), generator=g)
    scales = tuple((0.01 + 0.01 * torch.rand(len(weight), generator=g)).double().tolist())
    fields: dict[str, Any] = {
        "name": "p", "role": "pair", "bits": bits, "scales": scales, "lattice": scales, "shift": shift,
        "quantum": 1.0, "over_time": False, "bound": 2**20,
    }  # fmt: skip
    plan = ProjectionPlan(**fields | more)
    return QuantProjection(module, plan, weight.double(), bias.double(), Clock(), steps), weight, bias


def taps(
    module: Any, shape: tuple[int, ...], c: int, out: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...], Any]]:
    """(input channel, position, index into the kernel) of every tap inside the image, of one output."""
    dims = len(shape)
    k, s, p, d = (module.kernel_size, module.stride, module.padding, module.dilation)
    per_group = module.in_channels // module.groups
    group = c // (module.out_channels // module.groups)
    found = []
    for i in range(per_group):
        for tap in product(*(range(n) for n in k)):
            where = tuple(out[a] * s[a] + tap[a] * d[a] - p[a] for a in range(dims))
            if all(0 <= where[a] < shape[a] for a in range(dims)):
                found.append((group * per_group + i, where, (c, i, *tap)))
    return found


def out_shape(module: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            shape, module.kernel_size, module.stride, module.padding, module.dilation, strict=True
        )
    )


def convolve(module: Any, x: Tensor, weight: Tensor) -> Tensor:
    """Wq x in Python integers, x[B, C, ...]."""
    space = tuple(x.shape[2:])
    size = out_shape(module, space)
    y = torch.zeros(len(x), module.out_channels, *size, dtype=torch.int64)
    for b in range(len(x)):
        for c in range(module.out_channels):
            for o in product(*(range(n) for n in size)):
                total = sum(int(x[(b, i, *at)]) * int(weight[w]) for i, at, w in taps(module, space, c, o))
                y[(b, c, *o)] = total
    return y


def half_even(x: Fraction) -> int:
    return round(x)


CONVS = [
    nn.Conv2d(3, 4, 3, 1, 1),
    nn.Conv2d(4, 4, 3, 2, 1, groups=2),
    nn.Conv2d(4, 4, 3, 1, 1, groups=4),
    nn.Conv2d(2, 3, 3, 1, 2, dilation=2),
    nn.Conv2d(2, 3, (1, 3), (2, 1), (0, 1)),
    nn.Conv2d(3, 2, 1, 2),
    nn.Conv1d(3, 4, 3, 2, 1),
    nn.Conv1d(4, 4, 5, padding=4, dilation=2, groups=2, bias=False),
]


@pytest.mark.parametrize("module", CONVS, ids=repr)
def test_convolutions(module: Any) -> None:
    q, weight, bias = make(module)
    shape = (5, 6)[: weight.dim() - 2]
    x = torch.randint(0, 4, (2, module.in_channels, *shape), generator=torch.Generator().manual_seed(1))
    expected = (convolve(module, x, weight) << 3) + bias.view(-1, *[1] * len(shape))
    found = q(x.float())
    assert found.dtype == torch.float32
    assert torch.equal(found.long(), expected) and torch.equal(found, found.round())


def test_linear_on_tokens() -> None:
    q, weight, bias = make(nn.Linear(5, 3), shift=2)
    x = torch.randint(0, 3, (2, 2, 4, 5), generator=torch.Generator().manual_seed(0))  # [T, B, N, C]
    found = q(x.float())
    for t, b, n, c in product(range(2), range(2), range(4), range(3)):
        total = sum(int(x[t, b, n, i]) * int(weight[c, i]) for i in range(5))
        assert int(found[t, b, n, c]) == (total << 2) + int(bias[c])


def test_wide_accumulators_use_float64() -> None:
    module = nn.Linear(3, 1)
    q, weight, bias = make(module, bits=8, shift=8, bound=2**30)
    x = torch.tensor([[32767.0, 32765.0, 32763.0]])
    total = (sum(int(v) * int(w) for v, w in zip(x[0], weight[0], strict=True)) << 8) + int(bias)
    assert abs(total) > 2**24
    assert int(q(x)) == total


@pytest.mark.parametrize("module", CONVS, ids=repr)
def test_border_map(module: Any) -> None:
    """x ~ s (p - z): padding is x = 0, so z counts only for taps inside the image; z is no integer."""
    channels = module.in_channels
    zeros = tuple(int(2**16 * z) for z in (100.37, 3.5, -7.123, 255.9)[:channels])
    scales = (0.017, 0.5, 0.031, 0.2)[:channels]
    q, weight, bias = make(module, input=InputPlan(scales, zeros, True), bits=8, bound=2**23)
    space = (5, 6)[: weight.dim() - 2]
    p = torch.randint(0, 256, (2, channels, *space), generator=torch.Generator().manual_seed(2))
    s, z = (torch.tensor(v, dtype=torch.float64).view(-1, *[1] * len(space)) for v in (scales, zeros))
    x = s * (p - z / 2**16)
    found = q(x).double()
    sums = convolve(module, p, weight) << 3
    for c in range(module.out_channels):
        for o in product(*(range(n) for n in found.shape[2:])):
            inside = sum(
                Fraction(zeros[i], 2**16) * (int(weight[w]) << 3) for i, _, w in taps(module, space, c, o)
            )
            constant = half_even(Fraction(int(bias[c]) - inside))
            for b in range(2):
                assert int(found[(b, c, *o)]) == int(sums[(b, c, *o)]) + constant
    # and the same in real numbers: the projection of x itself with ordinary zero padding
    real = {nn.Conv1d: nn.functional.conv1d, nn.Conv2d: nn.functional.conv2d}[type(module)](
        p - z / 2**16, weight.double(), None, module.stride, module.padding, module.dilation, module.groups
    )
    error = found - (real * 8 + bias.view(-1, *[1] * len(space)))
    assert float(error.abs().max()) <= 0.5 + 1e-6


def test_border_map_of_a_linear_input() -> None:
    q, weight, bias = make(
        nn.Linear(4, 3), bits=8, input=InputPlan((0.1,), (int(12.3 * 2**16),), False), bound=2**23
    )
    p = torch.randint(0, 256, (5, 4), generator=torch.Generator().manual_seed(3))
    found = q(0.1 * (p.double() - int(12.3 * 2**16) / 2**16))
    for b, c in product(range(5), range(3)):
        total = sum(int(p[b, i]) * int(weight[c, i]) for i in range(4)) << 3
        z = Fraction(int(12.3 * 2**16), 2**16) * (sum(map(int, weight[c])) << 3)
        assert int(found[b, c]) == total + half_even(int(bias[c]) - z)


def test_another_image_size_has_its_own_map() -> None:
    module = nn.Conv2d(1, 1, 3, 1, 1)
    q, weight, bias = make(module, bits=8, input=InputPlan((1.0,), (10 * 2**16,), True), bound=2**23)
    for size in (4, 6, 4):
        p = torch.randint(0, 256, (1, 1, size, size), generator=torch.Generator().manual_seed(size))
        expected = (convolve(module, p - 10, weight) << 3) + bias.view(-1, 1, 1)
        assert torch.equal(q(p.float() - 10).long(), expected)


def test_maps_follow_the_module_to_another_device() -> None:
    q, _, _ = make(nn.Conv2d(1, 1, 3, 1, 1), bits=8, input=InputPlan((1.0,), (10 * 2**16,), True))
    q(torch.zeros(1, 1, 4, 4))
    q.to("meta")
    assert q(torch.zeros(1, 1, 4, 4, device="meta")).device.type == "meta"


def test_inputs_off_the_grid_are_clipped() -> None:
    q, weight, bias = make(nn.Linear(2, 1), bits=8, shift=0, input=InputPlan((1.0,), (100 * 2**16,), True))
    found = q(torch.tensor([[1000.0, -1000.0]]))
    w = weight[0].tolist()
    assert int(found) == 255 * w[0] + 0 * w[1] + int(bias) - 100 * sum(w)


MULTIPLIERS, SHIFTS = (16384, 20011, 1, 32767), (14, 20, 3, 25)


@pytest.mark.parametrize("bits", [8, 16])
def test_rescale_to_a_chain(bits: int) -> None:
    rescale = RescalePlan(MULTIPLIERS, SHIFTS, bits, (0.1,) * 4)
    q, weight, bias = make(nn.Conv2d(3, 4, 3, 1, 1), role="chain", rescale=rescale, shift=5)
    x = torch.randint(0, 200, (1, 3, 4, 4), generator=torch.Generator().manual_seed(4))
    y = (convolve(q.inner, x, weight) << 5) + bias.view(-1, 1, 1)
    found = q(x.float())
    assert type(found) is Tensor
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    clipped = 0
    for c in range(4):
        for at in product(range(4), range(4)):
            exact = half_even(Fraction(int(y[(0, c, *at)]) * MULTIPLIERS[c], 2 ** SHIFTS[c]))
            clipped += not low <= exact <= high
            assert int(found[(0, c, *at)]) == min(max(exact, low), high)
    assert clipped > 0 or bits == 16


def stream(values: Any) -> Tensor:
    """A stream with these values, as a projection writes it."""
    n = len(values)
    q, _, _ = make(
        nn.Linear(n, n), shift=0, role="stream", rescale=RescalePlan((1,) * n, (0,) * n, 16, (1.0,) * n)
    )
    q.inner.weight.copy_(torch.eye(n))  # type: ignore[operator]  # a buffer, whatever nn.Module says
    q.inner.bias.zero_()  # type: ignore[operator]  # a buffer, whatever nn.Module says
    with torch.no_grad():
        return q(torch.tensor([values], dtype=torch.float32))


def saturated(*values: int) -> int:
    total = 0
    for v in values:
        total = min(max(total + v, -32768), 32767)
    return total


A, B = (30000, -30000, 5, 32767, -32768), (10000, -10000, 7, 1, -1)


def test_a_writer_saturates() -> None:
    found = stream([40000, -40000, 123, 32767, -32768])
    assert type(found) is StreamTensor
    assert found.flatten().tolist() == [32767, -32768, 123, 32767, -32768]


ADDS = {
    "+": lambda a, b: a + b,
    "torch.add": lambda a, b: torch.add(a, b),
    "a.add": lambda a, b: a.add(b),
    "a.add_": lambda a, b: a.add_(b),
    "sum": lambda a, b: sum([a, b]),
    "through a view": lambda a, b: a.view(-1) + b.reshape(-1),
    "plain first": lambda a, b: a.as_subclass(Tensor) + b,
    "plain second": lambda a, b: a + b.as_subclass(Tensor),
}


def in_place(a: Tensor, b: Tensor) -> Tensor:
    a += b
    return a


@pytest.mark.parametrize("add", [*ADDS.values(), in_place], ids=[*ADDS, "+="])
def test_every_add_saturates(add: Any) -> None:
    total = add(stream(A), stream(B))
    assert total.flatten().tolist() == [saturated(a, b) for a, b in zip(A, B, strict=True)]
    again = total + stream(B).view(total.shape)  # what comes out is a stream again
    assert again.flatten().tolist() == [saturated(a, b, b) for a, b in zip(A, B, strict=True)]


def test_in_place_add_changes_the_stream_itself() -> None:
    a = stream(A)
    a.add_(stream(B))
    assert a.flatten().tolist() == [saturated(x, y) for x, y in zip(A, B, strict=True)]


def test_order_of_saturating_adds_matters() -> None:
    a, b, c = stream([30000]), stream([10000]), stream([-10000])
    assert int((a + b) + c) == saturated(30000, 10000, -10000) == 22767
    assert int(a + (b + c)) == 30000


@pytest.mark.parametrize(
    ("sub", "expected"),
    [(lambda a, b: a - b, 32767), (lambda a, b: torch.sub(a, b), 32767), (lambda a, b: b - a, -32768)],
)
def test_subtraction_saturates(sub: Any, expected: int) -> None:
    assert int(sub(stream([30000]), stream([-10000]))) == expected


def test_gradients_pass_through_a_stream() -> None:
    q, weight, _ = make(
        nn.Linear(2, 2), shift=0, role="stream", rescale=RescalePlan((1, 3), (0, 1), 16, (1.0, 1.0))
    )
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    y = q(x) + q(x)
    y.sum().backward()
    expected = 2 * (weight[0] * 1.0 + weight[1] * 1.5)
    assert x.grad is not None and x.grad.flatten().tolist() == expected.tolist()


@pytest.mark.parametrize("n", [4, 9, 49, 3])
def test_means_are_sums_again(n: int) -> None:
    """Behind a mean of n spikes the carrier is count / n."""
    q, weight, bias = make(nn.Linear(4, 3), quantum=1 / n)
    count = torch.randint(0, n + 1, (6, 4), generator=torch.Generator().manual_seed(n))
    found = q(count.float() / n)
    expected = ((count @ weight.T) << 3) + bias
    assert torch.equal(found.long(), expected)


def test_mean_over_time_at_another_number_of_steps() -> None:
    """Calibrated with T = 4, run with T = 6: logit = s W (count / 6) + b, in the units of T = 4."""
    q, weight, bias = make(nn.Linear(4, 3), quantum=1 / 4, over_time=True, role="output", steps=4)
    count = torch.randint(0, 7, (5, 4), generator=torch.Generator().manual_seed(0))
    for T in (4, 6, 3):
        q.clock.steps = T
        found = q(count.float() / T)
        expected = ((count @ weight.T) << 3).double() * 4 / T + bias
        assert torch.allclose(found.double(), expected, rtol=1e-6)


def test_decode_gives_real_numbers_at_once() -> None:
    q, weight, bias = make(nn.Linear(4, 3), decode=True, role="output")
    x = torch.randint(0, 3, (2, 4), generator=torch.Generator().manual_seed(0))
    found = q(x.float())
    for b, c in product(range(2), range(3)):
        acc = (sum(int(x[b, i]) * int(weight[c, i]) for i in range(4)) << 3) + int(bias[c])
        assert float(found[b, c]) == pytest.approx(acc * q.plan.lattice[c] / 8, rel=1e-7)


def test_float_weights_are_not_rounded() -> None:
    module = nn.Linear(3, 2)
    plan = make(module, bits=None)[0].plan
    weight = torch.tensor([[0.3, -0.7, 1.5], [0.1, 0.2, 0.3]], dtype=torch.float64)
    q = QuantProjection(module, plan, weight, torch.tensor([0.25, -0.5], dtype=torch.float64), Clock(), 4)
    found = q(torch.tensor([[1.0, 2.0, 3.0]]))
    expected = [8 * (0.3 - 1.4 + 4.5) + 0.25, 8 * (0.1 + 0.4 + 0.9) - 0.5]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-12)
    assert math.isclose(found[0, 0].item() % 1, expected[0] % 1, rel_tol=1e-9)


@pytest.mark.parametrize("role", ["pair", "output"])  # float32 and float64
@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 7, 7)), (nn.Linear(5, 3), (2, 3, 5))],
)
def test_many_weights_are_kept_in_eight_bits(
    module: nn.Module, shape: tuple[int, ...], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    floats, weight, bias = make(module, bits=8, role=role)
    monkeypatch.setattr(projection, "MANY", weight.numel())
    integers = weight.to(torch.int8)
    packed = QuantProjection(module, floats.plan, integers, bias.double(), Clock(), 4)
    inner: Any = packed.inner
    assert inner.weight.dtype == torch.int8 and inner.weight.data_ptr() == integers.data_ptr()
    x = torch.randint(0, 3, shape).float()
    with torch.no_grad():
        assert torch.equal(packed(x), floats(x)) and packed(x).dtype == floats(x).dtype
    assert torch.equal(packed.weight, floats.weight)
    assert inner.weight.dtype == torch.int8  # the floats of a call are gone
    few = QuantProjection(module, floats.plan, integers[:, :1], bias.double(), Clock(), 4)
    assert few.inner.weight.is_floating_point()  # type: ignore[operator]


def test_a_border_map_of_weights_in_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Conv2d(2, 3, 3, padding=1)
    read = InputPlan((0.5, 0.25), (3 * 2**16, 5 * 2**16), False)
    floats, weight, bias = make(module, input=read, bound=2**23)
    monkeypatch.setattr(projection, "MANY", 1)
    packed = QuantProjection(module, floats.plan, weight.to(torch.int8), bias.double(), Clock(), 4)
    x = torch.rand(2, 2, 5, 5)
    with torch.no_grad():
        assert torch.equal(packed(x), floats(x))

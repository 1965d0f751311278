"""IntegerCore, bit for bit, against docs/method.md written in Python's integers."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from ptq4snn.bridge.conversions import conversions
from ptq4snn.bridge.couplings import zero_points
from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.models.neuron import fire
from ptq4snn.modules.carrier import Clock
from ptq4snn.modules.integer import IntegerCore
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.network.state_layout import Layout
from ptq4snn.numerics.fixed_point import Fraction2

LAYOUTS = [Layout((3, 2, 2), (0,)), Layout((4, 3), (1,)), Layout((5,), (0,)), Layout((2, 3, 2), (0, 2))]


# --- the reference: Python integers only ----------------------------------------------------------


def rshift(a: int, n: int) -> int:
    return round(Fraction(a, 2**n))  # halves to even


def rshift_dithered(a: int, n: int, p: int, t: int) -> int:
    phase = (40503 * p + (int(f"{t % 16:04b}"[::-1], 2) << 12) + 2048) % 2**16
    return (a + (phase >> (16 - n))) >> n


def channels_of(layout: Layout) -> list[int]:
    """Channel of every flat position."""
    sizes = [layout.shape[d] for d in layout.dims]
    out = []
    for flat in range(math.prod(layout.shape)):
        index: list[int] = []
        rest = flat
        for n in reversed(layout.shape):
            index.insert(0, rest % n)
            rest //= n
        channel = 0
        for d, size in zip(layout.dims, sizes, strict=True):
            channel = channel * size + index[d]
        out.append(channel)
    return out


def element(plan: NeuronPlan, c: int, p: int, inputs: list[int]) -> list[tuple[int, int, int]]:
    """(S, Vq, A) of one element over time, by docs/method.md with the leak m / 2^n and the exponent k."""
    b, k, shift = plan.bits[c], plan.k[c], plan.shift
    m, n = plan.leak[c]
    out, v = [], 0
    for t, x in enumerate(inputs):
        a = x if plan.emits_units else x << shift
        if k is not None:
            a += rshift(m * (v << (k + shift)), n)
        else:
            mc, nc = plan.charge[c]
            a += rshift(mc * v, nc)
        s = int(a >= int(plan.theta[c]))
        after = {"hard": a * (1 - s), "soft": a - int(plan.rho[c]) * s, "none": a}[plan.reset]
        if k is None:
            ms, ns = plan.settle[c]
            q = rshift(ms * after, ns)
        elif plan.rounding == "even":
            q = rshift(after, k + shift)
        else:
            q = rshift_dithered(after, k + shift, p, t)
        z = plan.zero[c]
        v = min(max(q, -(2 ** (b - 1)) + z), 2 ** (b - 1) - 1 + z)
        assert -(2 ** (b - 1)) <= v - z < 2 ** (b - 1)  # what is stored fits its bits
        out.append((s, v, a))
    return out


# --- plans made by hand ---------------------------------------------------------------------------


def make(
    layout: Layout, shift: int, bits: list[int], leaks: list[tuple[int, int]], theta: list[int],
    input_bound: int, ks: list[int] | None = None, ratios: list[float] | None = None, reset: str = "hard",
    rounding: str = "even", rho: list[int] | None = None, emits_units: bool = True, steps: int = 6,
    zero: list[int] | None = None,
) -> NeuronPlan:  # fmt: skip
    n = len(bits)
    steps_of_state = ratios if ratios is not None else [2.0 ** (k + shift) for k in ks or ()]
    pairs = [conversions(r, Fraction2(*f)) for r, f in zip(steps_of_state, leaks, strict=True)]
    zeros = zero or [0] * n
    kept = max((2 ** (b - 1) + abs(z)) * c.value for b, z, (c, _) in zip(bits, zeros, pairs, strict=True))
    bound = input_bound * steps if max(bits) >= 32 else math.ceil(input_bound + kept) + 1
    unit = [0.01 * (i + 1) * 2.0**-shift for i in range(n)]
    return NeuronPlan(
        name="n", kind="pair", layout=layout, coupling="bridge", comparator=">=", reset=reset,
        rounding=rounding,
        v_rest=0.0, shift=shift, quantum=1.0, over_time=False, emits_units=emits_units, bits=tuple(bits),
        zero=tuple(zeros),
        k=tuple(ks) if ks is not None else (None,) * n,
        scales=tuple(u * r for u, r in zip(unit, steps_of_state, strict=True)), unit=tuple(unit),
        theta=tuple(map(float, theta)), rho=tuple(map(float, rho or theta)), leak=tuple(leaks),
        charge=tuple((c.m, c.n) for c, _ in pairs), settle=tuple((s.m, s.n) for _, s in pairs), bound=bound,
        leak_error=0.0, elements=layout.elements, steps=steps, in_budget=True, stem=False, readout=False,
        zero_state=False,
    )  # fmt: skip


def core_of(plan: NeuronPlan) -> IntegerCore:
    one = torch.ones((), dtype=torch.float64)
    spec = NeuronSpec(one, one, one, one, ">=", plan.reset, fire)  # type: ignore[arg-type]
    return IntegerCore(plan, spec, Clock(), plan.steps)


def compare(plan: NeuronPlan, x: Tensor, carrier: Tensor | None = None) -> int:
    """x[T, B, ...] integers; `carrier` is how they arrive, by default as they are. Returns how many fired."""
    core = core_of(plan)
    carrier = x.double() if carrier is None else carrier
    where = channels_of(plan.layout)
    flat = x.flatten(2).tolist()
    expected = [
        [element(plan, where[p], p, [flat[t][b][p] for t in range(len(x))]) for p in range(len(where))]
        for b in range(x.shape[1])
    ]
    v = None
    for t in range(len(x)):
        s, v, h = core.step(carrier[t], v, t)
        for name, found, i in (("A", h, 2), ("S", s, 0), ("V", v, 1)):
            wanted = torch.tensor([[e[t][i] for e in row] for row in expected], dtype=torch.float64)
            assert torch.equal(found.double().flatten(1), wanted), f"{name} at step {t}"
    spikes, last = core.run(carrier, None)
    assert last is not None and v is not None and torch.equal(last.double(), v.double())
    wanted = torch.tensor([[[e[t][0] for e in row] for row in expected] for t in range(len(x))])
    assert torch.equal(spikes.flatten(2), wanted.to(spikes))
    return int(wanted.sum())


def random_inputs(rng: random.Random, layout: Layout, size: int, T: int = 6, B: int = 2) -> Tensor:
    """Mostly small currents, so that states build up, and some large ones, so that they clip."""

    def one() -> int:
        return rng.randint(-size, size) // rng.choice([1, 2, 4, 16])

    n = T * B * math.prod(layout.shape)
    return torch.tensor([one() for _ in range(n)]).view(T, B, *layout.shape)


LEAKS = {
    "half": (1, 1), "IF": (1, 0), "3/4": (3, 2), "odd eighths": (181, 8), "none": (0, 0),
    "0.95": (31130, 15), "2/3": (21845, 15),
}  # fmt: skip


@pytest.mark.parametrize("rounding", ["even", "dither"])
@pytest.mark.parametrize("reset", ["hard", "soft", "none"])
@pytest.mark.parametrize("leak", LEAKS)
def test_bridged_states(leak: str, reset: str, rounding: str) -> None:
    m, n = LEAKS[leak]
    spikes = 0
    for seed in range(8):
        rng = random.Random(f"{leak}{reset}{rounding}{seed}")
        layout = LAYOUTS[seed % len(LAYOUTS)]
        c, shift = layout.channels, rng.randint(0, 8)
        low = (n if n <= 8 else 0) - shift
        high = min(15, 16 - shift) if rounding == "dither" else 15
        ks = [min(high, low + rng.choice([0, 1, 2, 4, 7])) for _ in range(c)]
        bits = [rng.choice([2, 4, 8, 16]) for _ in range(c)]
        size = 2 ** rng.randint(6, 20)
        theta = [rng.randint(1, size) for _ in range(c)]
        rho = [rng.randint(1, 2 * size) for _ in range(c)]
        units = rng.random() < 0.5
        bound = size if units else size << shift
        plan = make(layout, shift, bits, [(m, n)] * c, theta, bound, ks, reset=reset, rounding=rounding,
                    rho=rho, emits_units=units)  # fmt: skip
        spikes += compare(plan, random_inputs(rng, layout, size))
    assert spikes > 0


@pytest.mark.parametrize("rounding", ["even", "dither"])
@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_zero_points(reset: str, rounding: str) -> None:
    """Levels shifted by any of the zero points of a width, from all negative to all positive."""
    spikes = 0
    for seed in range(12):
        rng = random.Random(f"{reset}{rounding}{seed}")
        layout = LAYOUTS[seed % len(LAYOUTS)]
        c, shift = layout.channels, rng.randint(0, 6)
        bits = [rng.choice([2, 3, 4, 8]) for _ in range(c)]
        zero = [rng.choice(zero_points(b)) for b in bits]
        m, n = rng.choice(list(LEAKS.values()))
        ks = [(n if n <= 8 else 0) - shift + rng.choice([0, 2, 4]) for _ in range(c)]
        size = 2 ** rng.randint(6, 14)
        theta = [rng.randint(1, size) for _ in range(c)]
        plan = make(
            layout, shift, bits, [(m, n)] * c, theta, size, ks, reset=reset, rounding=rounding, zero=zero
        )
        spikes += compare(plan, random_inputs(rng, layout, size))
    assert spikes > 0


@pytest.mark.parametrize(("bits", "zero"), [((2, 3), (2, 4)), ((2, 3), (-1, -3)), ((4, 4), (8, 0))])
def test_channels_that_share_one_end_of_their_levels(bits: tuple[int, ...], zero: tuple[int, ...]) -> None:
    """0..3 beside 0..7, and -3..0 beside -7..0."""
    layout = Layout((2, 6), (0,))
    plan = make(layout, 2, list(bits), [(1, 1)] * 2, [40, 60], 200, [0, 1], reset="soft", zero=list(zero))
    compare(plan, random_inputs(random.Random(3), layout, 200))
    core = core_of(plan)
    far = torch.tensor([[[-1e4] * 6, [1e4] * 6]])
    lowest, highest = (core.from_state_value(x)[0, :, 0].tolist() for x in (-far.abs(), far.abs()))
    assert lowest == [-(2 ** (b - 1)) + z for b, z in zip(bits, zero, strict=True)]
    assert highest == [2 ** (b - 1) - 1 + z for b, z in zip(bits, zero, strict=True)]


@pytest.mark.parametrize("rounding", ["even", "dither"])
def test_every_channel_its_own_leak(rounding: str) -> None:
    layout = Layout((4, 3), (0,))
    leaks = [(1, 1), (3, 2), (31130, 15), (1, 0)]
    plan = make(layout, 4, [4, 2, 8, 16], leaks, [100, 70, 33, 500], 900, [-2, 0, 1, -4], reset="soft",
                rounding=rounding)  # fmt: skip
    compare(plan, random_inputs(random.Random(5), layout, 900))


@pytest.mark.parametrize("leak", ["half", "IF", "0.95"])
@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_32_bit_states(leak: str, reset: str) -> None:
    """Coupling "none": k = -F, the state is A' itself. The IF network's sums leave float32."""
    for seed, size in enumerate((1000, 2**21, 2**27)):
        layout, shift = LAYOUTS[seed], seed
        c = layout.channels
        theta = [size // 4 + 3] * c  # odd, and at 2^24 not a float32
        plan = make(layout, shift, [32] * c, [LEAKS[leak]] * c, theta, size, [-shift] * c, reset=reset)
        assert compare(plan, random_inputs(random.Random(seed), layout, size)) > 0


@pytest.mark.parametrize("rounding", ["even", "dither"])
@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_wide_accumulators(reset: str, rounding: str) -> None:
    """Beyond 2^24 everything is carried in float64: odd thresholds and resets must survive it."""
    size = 2**29
    for same in (True, False):
        layout = Layout((2, 4), (0,))
        theta = [2**25 + 1, 2**25 + (1 if same else 3)]
        rho = [2**26 + 1, 2**26 + (1 if same else 5)]
        plan = make(layout, 0, [16, 16 if same else 8], [(1, 1)] * 2, theta, size, [14, 14 if same else 15],
                    reset=reset, rounding=rounding, rho=rho)  # fmt: skip
        assert core_of(plan).wide
        assert compare(plan, random_inputs(random.Random(same), layout, size)) > 0


def test_dither_next_to_the_end_of_float32() -> None:
    """A + d must stay exact also where A itself only just fits float32."""
    layout = Layout((1, 64), (0,))
    plan = make(layout, 8, [16], [(1, 1)], [2**24], 2**24 - 2**21, [-7], rounding="dither", reset="none")
    plan = replace(plan, bound=2**24 - 1, bits=(24,))
    top = 2**24 - 3 - torch.arange(64).view(1, 1, 1, 64)
    compare(plan, torch.cat([top, -top])[:1])
    deep = make(layout, 8, [16], [(1, 1)], [2**24], 0, [8], rounding="dither", reset="none")
    deep = replace(deep, bound=2**24 - 1)
    compare(deep, top)


@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_ratio_couplings(reset: str) -> None:
    """`independent` and `reuse` off powers of two: multipliers of 15 bits for charge and settle."""
    spikes = 0
    for seed in range(12):
        rng = random.Random(seed)
        layout = LAYOUTS[seed % len(LAYOUTS)]
        c = layout.channels
        ratios = [math.exp(rng.uniform(math.log(0.02), math.log(3000))) for _ in range(c)]
        leak = rng.choice([(1, 1), (1, 0), (31130, 15)])
        size = 2 ** rng.randint(6, 18)
        plan = make(layout, rng.randint(0, 8), [rng.choice([2, 4, 8]) for _ in range(c)], [leak] * c,
                    [rng.randint(1, size) for _ in range(c)], size, ratios=ratios, reset=reset)  # fmt: skip
        for (m, _), r in zip(plan.settle, ratios, strict=True):
            assert m < 2**15
            assert math.ldexp(m, -plan.settle[ratios.index(r)][1]) == pytest.approx(1 / r, rel=2**-15)
        spikes += compare(plan, random_inputs(rng, layout, size))
    assert spikes > 0


def testconversions_of_powers_of_two_are_shifts() -> None:
    for m, n in LEAKS.values():
        for shift in range(23):
            charge, settle = conversions(2.0**shift, Fraction2(m, n))
            assert tuple(settle) == (1, shift)
            assert Fraction(charge.m, 2**charge.n) == Fraction(m * 2**shift, 2**n)
            assert charge.n == max(0, n - shift)  # nothing is rounded where the shift covers the leak


@pytest.mark.parametrize("quantum", [0.25, 1 / 3, 1 / 49])
def test_means_arrive_as_sums(quantum: float) -> None:
    """A mean of n integers is the sum again after multiplication by n."""
    layout = Layout((3, 4), (0,))
    plan = make(layout, 2, [4] * 3, [(1, 1)] * 3, [50, 60, 70], 500, [0, 1, -1], emits_units=False)
    x = random_inputs(random.Random(1), layout, 400)
    compare(replace(plan, quantum=quantum), x, (x.float() * torch.tensor(quantum)).float())


def test_mean_over_time_at_another_number_of_steps() -> None:
    """A mean over 6 steps where the plan was made for 4: count / 6 = (count 4 / 6) / 4."""
    layout = Layout((3, 4), (0,))
    plan = replace(
        make(layout, 3, [4] * 3, [(1, 1)] * 3, [5, 6, 7], 500, [0, 1, -1], emits_units=False, steps=4),
        quantum=1 / 4, over_time=True,
    )  # fmt: skip
    core = core_of(plan)
    core.clock.steps = 6
    count = torch.arange(24).view(2, 3, 4)
    wanted = [rshift_fraction(Fraction(int(c) * 8 * 4, 6)) for c in count.flatten()]
    assert core.charge(count.float() / 6, None).flatten().tolist() == wanted


def rshift_fraction(x: Fraction) -> int:
    return round(x)


@pytest.mark.parametrize("wide", [False, True])
def test_round_trips(wide: bool) -> None:
    layout = Layout((3, 4), (0,))
    size = 2**27 if wide else 2**20
    plan = replace(make(layout, 4, [4, 8, 16], [(1, 1)] * 3, [50, 60, 70], size, [-3, 0, 2]), v_rest=-0.75)
    core = core_of(plan)
    assert core.wide is wide
    g = torch.Generator().manual_seed(0)
    h = torch.randint(-(2**20), 2**20, (5, 3, 4), generator=g).double()
    back = core.from_potential(core.potential(h))
    unit = torch.tensor(plan.unit, dtype=torch.float64).view(3, 1)
    assert torch.allclose(core.potential(h).double(), h * unit - 0.75, rtol=1e-6)
    assert torch.equal(back.double(), h)
    v = torch.stack(
        [torch.randint(-(2 ** (b - 1)), 2 ** (b - 1), (5, 4), generator=g) for b in plan.bits], 1
    ).double()
    scale = torch.tensor(plan.scales, dtype=torch.float64).view(3, 1)
    assert torch.allclose(core.state_value(v).double(), v * scale - 0.75, rtol=1e-6)
    assert torch.equal(core.from_state_value(core.state_value(v)).double(), v)


def test_a_state_off_the_grid_is_brought_to_it() -> None:
    layout = Layout((2, 1), (0,))
    core = core_of(make(layout, 0, [4, 2], [(1, 1)] * 2, [50, 60], 100, [1, 0]))
    step = torch.tensor(core.plan.scales).view(2, 1)
    found = core.from_state_value(torch.tensor([[100.0], [-100.0]]) * step)
    assert found.flatten().tolist() == [7.0, -2.0]
    assert core.from_state_value(torch.tensor([[2.6], [-1.4]]) * step).flatten().tolist() == [3.0, -1.0]


def test_caches_follow_the_module_to_another_device() -> None:
    """Constants are cast once and kept; on another device they must be made again."""
    layout = Layout((2, 3), (0,))
    plan = make(layout, 2, [4, 2], [(1, 1), (3, 2)], [50, 60], 100, [1, 2], rounding="dither")
    core = core_of(plan)
    x = random_inputs(random.Random(0), layout, 100).float()
    core.run(x, None)
    core.to("meta")
    spikes, _ = core.run(x.to("meta"), None)
    assert spikes.device.type == "meta"


@pytest.mark.parametrize("reset", ["hard", "soft"])
def test_gradient_by_hand(reset: str) -> None:
    """Two steps of one LIF: surrogate at (A - theta_q) unit, reset detached, straight through rounding."""
    layout = Layout((1,), (0,))
    plan = make(layout, 3, [4], [(1, 1)], [40], 200, [0], reset=reset)
    core = core_of(plan)
    x = torch.tensor([30.0, 25.0], requires_grad=True)
    spikes, _ = core.run(x.view(2, 1, 1), None)
    spikes.sum().backward()

    def slope(a: float) -> float:
        u = (a - 40) * plan.unit[0]
        return 1 / (1 + (math.pi * u) ** 2) * plan.unit[0]  # alpha = 2

    a0 = 30
    a1 = 25 + rshift(rshift(a0, 3) << 3, 1)  # no spike at 30; Vq = 4, charge 16
    # dA1/dA0 = leak: settle divides by 2^(k+F), charge multiplies with it
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([slope(a0) + 0.5 * slope(a1), slope(a1)], rel=1e-5)


def test_no_gradient_through_a_clipped_state() -> None:
    layout = Layout((1,), (0,))
    core = core_of(make(layout, 0, [2], [(1, 0)], [1000], 200, [0], reset="none"))
    x = torch.tensor([-90.0, 5.0], requires_grad=True)  # Vq = clip(-90) = -2
    core.run(x.view(2, 1, 1), None)[0][1].sum().backward()
    assert x.grad is not None and x.grad[0] == 0 and x.grad[1] > 0

"""The canonical neuron in integers (docs/method.md), carried in floats.

A  = x + rshift(Vq * m_c, n_c)                    charge: leak and scale in one fixed-point factor
S  = A >= theta_q                                 fire; or floor(A / theta_q), 0 .. most
Vq = clip(rshift(A' * m_s, n_s), lo_c, hi_c)      settle, after the reset
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ptq4snn.frameworks.adapter import NeuronSpec
from ptq4snn.frameworks.core import NeuronCore
from ptq4snn.modules.carrier import Clock, counted, plain, round_through, tracked
from ptq4snn.network.plan import NeuronPlan
from ptq4snn.numerics.device import keeping_types
from ptq4snn.numerics.dither import PHASES, first_phase, later_phase
from ptq4snn.numerics.grid import signed_range
from ptq4snn.numerics.limits import EXACT_FLOAT32

__all__ = ["IntegerCore"]

Parameter = float | Tensor


def _clip(v: Tensor, lo: Parameter, hi: Parameter) -> Tensor:
    """In place; torch's clamp is slow with a tensor that is spread over others."""
    v = v.clamp_(min=lo) if isinstance(lo, float) else torch.maximum(v, lo, out=v)
    return v.clamp_(max=hi) if isinstance(hi, float) else torch.minimum(v, hi, out=v)


class IntegerCore(NeuronCore):
    listens = False  # the probe only wants to know what comes in: nothing is computed

    def __init__(self, plan: NeuronPlan, spec: NeuronSpec, clock: Clock, steps: int) -> None:
        super().__init__()
        self.plan, self.spec, self.clock, self.steps = plan, spec, clock, steps
        factors = [[math.ldexp(m, -n) for m, n in pairs] for pairs in (plan.charge, plan.settle)]
        widest = max(plan.bits) + any(plan.zero)  # levels shifted to one side reach twice as far
        taken = plan.most * max(map(abs, plan.rho), default=0) if plan.most > 1 else 0
        self.wide = max(plan.bound, taken) >= EXACT_FLOAT32
        self.wide_charge = self.wide or 2 ** (widest - 1) * max(m for m, _ in plan.charge) >= EXACT_FLOAT32
        self.wide_settle = self.wide or any(m != 1 for m, _ in plan.settle)
        self.rounds_charge = any(f != round(f) for f in factors[0])
        self.rounds_settle = any(f != 1.0 for f in factors[1])
        self._keep("charge_by", factors[0])
        self._keep("settle_by", factors[1])
        self._keep("lift_by", [math.ldexp(m, -n) for m, n in plan.lift] or [1.0])
        self._keep("theta", plan.theta)
        self._keep("rho", plan.rho)
        self._keep("unit", plan.unit)
        self._keep("scale", plan.scales)
        ranges = [
            (lo + z, hi + z) for (lo, hi), z in zip(map(signed_range, plan.bits), plan.zero, strict=True)
        ]
        same = len(set(ranges)) == 1  # clamp takes two numbers or two tensors
        self._keep("lo", [lo for lo, _ in ranges], same)
        self._keep("hi", [hi for _, hi in ranges], same)
        self.phases: dict[tuple[int, ...], Tensor] = {}
        self._seen = (-1, 0)  # forward pass, steps in it

    def _keep(self, name: str, values: Sequence[float], same: bool | None = None) -> None:
        """A parameter per channel; where all are equal a plain number, which is faster."""
        same = len(set(values)) == 1 if same is None else same
        vector = torch.tensor(list(values), dtype=torch.float64)
        self.register_buffer(
            f"_{name}", None if same else self.plan.layout.broadcast(vector), persistent=False
        )
        setattr(self, f"_{name}_number", float(values[0]) if same else None)
        self._casts: dict[tuple[str, torch.dtype], Tensor] = {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> IntegerCore:
        """On another device the constants are cast again."""
        fn = keeping_types(fn)
        self._casts.clear()
        self.phases.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _get(self, name: str, dtype: torch.dtype) -> Parameter:
        number: float | None = getattr(self, f"_{name}_number")
        if number is not None:
            return number
        key = (name, dtype)
        if key not in self._casts:
            self._casts[key] = self.get_buffer(f"_{name}").to(dtype)
        return self._casts[key]

    def incoming(self, x: Tensor) -> Tensor:
        """The input carrier as integers in `unit`."""
        x = plain(x)
        inverse = 1 / self.plan.quantum
        if self.plan.over_time:
            inverse *= self.clock.steps / self.steps
        x = counted(x, inverse)
        if not self.plan.emits_units and self.plan.shift:
            x = x * 2.0**self.plan.shift
        if self.plan.over_time and self.clock.steps != self.steps:  # a sum over T' steps, in units of 1/T
            x = round_through(x.double() * (self.steps / self.clock.steps))
        return x.double() if self.wide else x.float()

    def charge(self, x: Tensor, v: Tensor | None) -> Tensor:
        a = self.incoming(x)
        if v is None:
            return a
        if self.wide_charge:
            v = v.double()
        by = self._get("charge_by", v.dtype)
        if self.rounds_charge:
            return a + round_through(v * by).to(a.dtype)
        return torch.add(a, v, alpha=by) if isinstance(by, float) else torch.addcmul(a, v, by).to(a.dtype)

    def fire(self, h: Tensor) -> Tensor:
        theta = self._get("theta", h.dtype)
        if self.plan.most > 1:
            return self._count(h, theta)
        spikes = torch.empty(h.shape, dtype=torch.float32, device=h.device)
        spikes = torch.ge(h.detach(), theta, out=spikes)
        if not tracked(h):
            return spikes
        soft = self.spec.surrogate(
            (h - theta) * self._get("unit", h.dtype)
        ).float()  # at (A - theta_q) * unit
        return (soft - soft.detach()).add_(spikes)

    def _count(self, h: Tensor, theta: Parameter) -> Tensor:
        """floor(A / theta_q), 0 .. most: whole numbers below 2^24 (2^53) divide to the right side of every
        whole number, so that the floor is exact."""
        found = (h.detach() / theta).floor().clamp(0, self.plan.most).float()
        if not tracked(h):
            return found
        soft = self.spec.surrogate((h - theta) * self._get("unit", h.dtype)).float()
        return found + (soft - soft.detach())

    def settle(self, h: Tensor, s: Tensor, t: int) -> Tensor:
        given = h
        h = self._after_reset(h, s.detach())
        if self.wide_settle:
            h = h.double()
        if self.rounds_settle:
            by = self._get("settle_by", h.dtype)
            h = round_through(h * by) if self.plan.rounding == "even" else self._dither(h, by, t)
        lo, hi = self._get("lo", h.dtype), self._get("hi", h.dtype)
        if tracked(h):
            v = torch.clamp(h, lo, hi)  # type: ignore[arg-type]
        else:
            v = _clip(h.clone() if h is given else h, lo, hi)
        return v.double() if self.wide else v.float()

    def _after_reset(self, h: Tensor, s: Tensor) -> Tensor:
        """A' in fused operations: A - A S, A - rho S or A."""
        if self.plan.reset == "hard":
            fired = s if self.plan.most == 1 else s > 0
            return torch.addcmul(h, h, fired.to(h.dtype), value=-1)
        if self.plan.reset == "soft":
            return h - self._get("rho", h.dtype) * s.to(h.dtype)
        return h

    def _dither(self, h: Tensor, by: Parameter, t: int) -> Tensor:
        """floor((A + d) 2^-n), d = phase >> (16 - n), in floats (docs/method.md)."""
        shape = tuple(h.shape[1:])
        if shape not in self.phases:
            p = torch.arange(h[0].numel(), dtype=torch.int64, device=h.device)
            self.phases[shape] = first_phase(p).reshape(shape)
        phase = later_phase(self.phases[shape], t)
        d = (phase.to(h.dtype) / (PHASES * by)).floor()
        y = (h + d) * by
        return y + (y.floor() - y).detach()

    def _tick(self) -> None:
        """Another step of this forward pass."""
        if self._seen[0] != self.clock.passes:
            self._seen = (self.clock.passes, 0)
        self._seen = (self.clock.passes, self._seen[1] + 1)
        self.clock.steps = max(self.clock.steps, self._seen[1])

    def step(self, x: Tensor, v: Tensor | None, t: int) -> tuple[Tensor, Tensor, Tensor]:
        self._tick()
        if not self.listens or self.probe is None:
            return super().step(x, v, t)
        nothing = torch.zeros((), dtype=torch.float32, device=x.device).expand(x.shape)
        self.probe(x, nothing, nothing, nothing, t)
        return nothing, nothing, nothing

    def run(self, x: Tensor, v: Tensor | None, t: int = 0) -> tuple[Tensor, Tensor | None]:
        """Where nobody watches and float32 holds what is stored, all steps in the same three tensors."""
        rare = self.wide or self.plan.most > 1 or self.plan.over_time or self.plan.rounding != "even"
        if rare or self.probe is not None or v is not None or tracked(x) or not len(x):
            return super().run(x, v, t)
        x = plain(x)
        spikes, h, other = (torch.empty(s, device=x.device) for s in (x.shape, x.shape[1:], x.shape[1:]))
        theta, rho, lo, hi = (self._get(name, h.dtype) for name in ("theta", "rho", "lo", "hi"))
        for i, s in enumerate(spikes.unbind(0)):
            self._tick()
            current = self.incoming(x[i])
            if i == 0:
                h.copy_(current)
            else:
                self._times(h, "charge_by", self.wide_charge, self.rounds_charge).add_(current)
            torch.ge(h, theta, out=s)
            if self.plan.reset == "hard":
                torch.addcmul(h, h, s, value=-1, out=h)
            elif self.plan.reset == "soft":
                h.sub_(torch.mul(s, rho, out=other))
            if self.rounds_settle:
                self._times(h, "settle_by", self.wide_settle, True)
            _clip(h, lo, hi)
        return spikes, h

    def _times(self, h: Tensor, name: str, wide: bool, rounds: bool) -> Tensor:
        """rshift(h m, n) in the place of h; the product in float64 where float32 does not hold it."""
        product = h.double() if wide else h
        product.mul_(self._get(name, product.dtype))
        product = product.round_() if rounds else product
        return h.copy_(product) if wide else h

    def clipped(self, h: Tensor, s: Tensor) -> Tensor:
        """Ones where the state that follows (h, s) does not fit its bits, else zeros."""
        h = self._after_reset(h, s)
        if self.wide_settle:
            h = h.double()
        q = (h * self._get("settle_by", h.dtype)).round_()
        lo, hi = self._get("lo", q.dtype), self._get("hi", q.dtype)
        kept = _clip(q.clone(), -math.inf if self.spec.floor is not None else lo, hi)
        return torch.ne(q, kept, out=kept)

    def emitted(self, h: Tensor, v: Tensor | None) -> Tensor:
        """A[t], or rshift(Vq[t-1] m, n): a current in units."""
        if self.plan.emits != "carried":
            return h
        if v is None:
            return torch.zeros_like(h)
        return round_through(v.double() * self._get("lift_by", torch.float64)).to(h.dtype)

    def potential(self, h: Tensor) -> Tensor:
        return (h.double() * self._get("unit", torch.float64) + self.plan.v_rest).float()

    def from_potential(self, mem: Tensor) -> Tensor:
        a = ((mem.double() - self.plan.v_rest) / self._get("unit", torch.float64)).round()
        return a if self.wide else a.float()

    def state_value(self, v: Tensor) -> Tensor:
        return (v.double() * self._get("scale", torch.float64) + self.plan.v_rest).float()

    def from_state_value(self, mem: Tensor) -> Tensor:
        q = ((mem.double() - self.plan.v_rest) / self._get("scale", torch.float64)).round()
        q = torch.clamp(q, self._get("lo", q.dtype), self._get("hi", q.dtype))  # type: ignore[arg-type]
        return q if self.wide else q.float()

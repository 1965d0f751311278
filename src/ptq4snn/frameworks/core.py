"""The canonical neuron as pure steps, in float: charge, fire, settle (equations: frameworks/adapter.py).

A state is passed in and handed back; where it lives between calls is the shell's business.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec

__all__ = ["FloatCore", "NeuronCore", "Probe"]

# called after every step with (x, H, S, V, t); H and V as the core holds them
Probe = Callable[[Tensor, Tensor, Tensor, Tensor, int], None]


class NeuronCore(nn.Module):
    """Steps of one neuron. `v` is the canonical post-reset state, None at the start of a sequence."""

    probe: Probe | None = None

    def charge(self, x: Tensor, v: Tensor | None) -> Tensor:
        """Pre-fire potential H[t] from the input x[B, ...] and V[t-1]."""
        raise NotImplementedError

    def fire(self, h: Tensor) -> Tensor:
        """Spikes S[t] in the carrier's type: 0 or 1, or how many."""
        raise NotImplementedError

    def settle(self, h: Tensor, s: Tensor, t: int) -> Tensor:
        """Post-reset state V[t] as it is kept until the next step."""
        raise NotImplementedError

    def potential(self, h: Tensor) -> Tensor:
        """H in the framework's own units, as a user reads it."""
        raise NotImplementedError

    def from_potential(self, mem: Tensor) -> Tensor:
        """Inverse of `potential`."""
        raise NotImplementedError

    def state_value(self, v: Tensor) -> Tensor:
        """V in the framework's own units."""
        raise NotImplementedError

    def from_state_value(self, mem: Tensor) -> Tensor:
        """Inverse of `state_value`; a value off the grid is brought to it."""
        raise NotImplementedError

    def emitted(self, h: Tensor, v: Tensor | None) -> Tensor:
        """What a neuron that emits a current hands on, as the next one counts it: H[t], or V[t-1]."""
        raise NotImplementedError

    def step(self, x: Tensor, v: Tensor | None, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """One time step: spikes S[t], state V[t], pre-fire potential H[t]."""
        h = self.charge(x, v)
        s = self.fire(h)
        v = self.settle(h, s, t)
        if self.probe is not None:
            self.probe(x, h, s, v, t)
        return s, v, h

    def run(self, x: Tensor, v: Tensor | None, t: int = 0) -> tuple[Tensor, Tensor | None]:
        """A whole sequence x[T, B, ...]: spikes [T, B, ...] and the last state."""
        if torch.is_grad_enabled() or not len(x):
            steps = []
            for i, x_t in enumerate(x.unbind(0)):
                s, v, _ = self.step(x_t, v, t + i)
                steps.append(s)
            return torch.stack(steps), v
        spikes = x
        for i, x_t in enumerate(x.unbind(0)):
            s, v, _ = self.step(x_t, v, t + i)
            spikes = s.new_empty(len(x), *s.shape) if i == 0 else spikes  # stacking would hold them twice
            spikes[i] = s
        return spikes, v


class FloatCore(NeuronCore):
    """The neuron as trained, rewritten to canonical form."""

    def __init__(self, spec: NeuronSpec) -> None:
        super().__init__()
        self.spec = spec

    @staticmethod
    def _value(p: Tensor, like: Tensor) -> float | Tensor:
        """A scalar keeps float64 precision in any model; a tensor takes the model's type."""
        return float(p) if p.dim() == 0 else p.to(like)

    def run(self, x: Tensor, v: Tensor | None, t: int = 0) -> tuple[Tensor, Tensor | None]:
        """Where nobody watches, all steps in the same three tensors: memory costs more than arithmetic."""
        plain = type(x) is Tensor and len(x) > 0 and not (torch.is_grad_enabled() and x.requires_grad)
        if not plain or self.probe is not None or self.spec.emits != "spikes" or self.spec.most != 1:
            return super().run(x, v, t)
        first = x[0]
        h = self.charge(first, v)
        if h.shape != first.shape or h.dtype != first.dtype or h.requires_grad:
            return super().run(x, v, t)
        return self._in_place(x, h.clone() if h is first else h)

    def _in_place(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The same bits as `step` after `step`, from the first potential H on, which becomes the state."""
        gain, leak, theta, rho = (
            self._value(p, x) for p in (self.spec.gain, self.spec.leak, self.spec.theta, self.spec.rho)
        )
        fires = torch.ge if self.spec.comparator == ">=" else torch.gt
        spikes, other = torch.empty(x.shape, dtype=h.dtype, device=h.device), torch.empty_like(h)
        for i, s in enumerate(spikes.unbind(0)):
            if i:
                scaled = not (isinstance(gain, float) and gain == 1.0)
                h.mul_(leak).add_(torch.mul(x[i], gain, out=other) if scaled else x[i])
            fires(h, theta, out=s)
            if self.spec.reset == "hard":
                h.mul_(torch.eq(s, 0, out=other))
            elif self.spec.reset == "soft":
                h.sub_(torch.mul(s, rho, out=other))
            if self.spec.floor is not None:
                h.clamp_min_(self._value(self.spec.floor, h))
        return spikes, h

    def charge(self, x: Tensor, v: Tensor | None) -> Tensor:
        gain = self._value(self.spec.gain, x)
        current = x if isinstance(gain, float) and gain == 1.0 else gain * x
        if v is None:
            return current
        kept = self._value(self.spec.leak, x) * v
        fits = kept.shape == current.shape and kept.dtype == current.dtype and type(kept) is type(current)
        return kept.add_(current) if fits else current + kept

    def fire(self, h: Tensor) -> Tensor:
        if self.spec.emits != "spikes":
            return torch.zeros_like(h)
        theta = self._value(self.spec.theta, h)
        if self.spec.most != 1:
            return torch.div(h, theta, rounding_mode="trunc").clamp(0, self.spec.most)
        fires = torch.ge if self.spec.comparator == ">=" else torch.gt
        return fires(h.detach(), theta, out=torch.empty_like(h))  # sooner than a bool that is cast

    def settle(self, h: Tensor, s: Tensor, t: int) -> Tensor:
        v = h
        if self.spec.reset == "hard":
            v = (s == 0).to(h.dtype) * h if self.spec.most != 1 else (1 - s).mul_(h)
        elif self.spec.reset == "soft":
            v = h - self._value(self.spec.rho, h) * s
        return v if self.spec.floor is None else v.clamp_min(self._value(self.spec.floor, v))

    def emitted(self, h: Tensor, v: Tensor | None) -> Tensor:
        if self.spec.emits == "carried":
            return torch.zeros_like(h) if v is None else v
        return h

    def potential(self, h: Tensor) -> Tensor:
        return h + self.spec.v_rest if self.spec.v_rest else h

    def from_potential(self, mem: Tensor) -> Tensor:
        return mem - self.spec.v_rest if self.spec.v_rest else mem

    def state_value(self, v: Tensor) -> Tensor:
        return self.potential(v)

    def from_state_value(self, mem: Tensor) -> Tensor:
        return self.from_potential(mem)

"""The project's own neurons: LIF, IF and PLIF over whole sequences.

The state is the shifted potential V - v_reset (docs/method.md, the canonical neuron):

    H[t] = leak * V[t-1] + gain * x[t]        charge
    S[t] = H[t] >= theta                      fire
    V[t] = H (1 - S)   or   H - theta * S     hard or soft reset

A call is a whole sequence x[T, B, ...] and starts from V = 0, so no state is left behind between
calls and there is nothing to reset.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["IF", "LIF", "PLIF", "Spike", "fire"]


class Spike(torch.autograd.Function):
    """Heaviside step with the arctangent surrogate: dS/du = (alpha/2) / (1 + (pi/2 alpha u)^2)."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, u: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(u)
        ctx.alpha = alpha  # type: ignore[attr-defined]
        return (u >= 0).to(u.dtype)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors  # type: ignore[attr-defined]
        alpha: float = ctx.alpha  # type: ignore[attr-defined]
        return grads[0] * (alpha / 2) / (1 + (math.pi / 2 * alpha * u).square()), None


def fire(u: Tensor, alpha: float = 2.0) -> Tensor:
    """Spikes where u = H - theta is not negative."""
    spikes: Tensor = Spike.apply(u, alpha)  # type: ignore[no-untyped-call]
    return spikes


class LIF(nn.Module):
    """Leaky integrate-and-fire neuron; `v_reset=None` is the soft reset."""

    def __init__(
        self,
        tau: float = 2.0,
        decay_input: bool = True,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        detach_reset: bool = True,
        alpha: float = 2.0,
    ) -> None:
        super().__init__()
        if tau < 1.0:
            raise ValueError(f"tau must be at least 1, got {tau}")
        self.tau, self.decay_input = tau, decay_input
        self.v_threshold, self.v_reset = v_threshold, v_reset
        self.detach_reset, self.alpha = detach_reset, alpha

    @property
    def leak(self) -> float | Tensor:
        return 1.0 - 1.0 / self.tau

    @property
    def gain(self) -> float | Tensor:
        return 1.0 / self.tau if self.decay_input else 1.0

    @property
    def theta(self) -> float:
        """Threshold above the resting potential."""
        return self.v_threshold - (self.v_reset or 0.0)

    def forward(self, x: Tensor) -> Tensor:  # [T, B, ...]
        leak, theta = self.leak, self.theta
        current = x if isinstance(self.gain, float) and self.gain == 1.0 else self.gain * x
        spikes = []
        v: Tensor | None = None
        for i in current.unbind(0):
            h = i if v is None else i + leak * v
            s = fire(h - theta, self.alpha)
            spikes.append(s)
            r = s.detach() if self.detach_reset else s
            v = h * (1 - r) if self.v_reset is not None else h - theta * r
        return torch.stack(spikes)

    def extra_repr(self) -> str:
        return f"v_threshold={self.v_threshold}, v_reset={self.v_reset}, tau={self.tau}"


class IF(LIF):
    """Integrate-and-fire neuron: no leak."""

    def __init__(
        self,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        detach_reset: bool = True,
        alpha: float = 2.0,
    ) -> None:
        super().__init__(1.0, False, v_threshold, v_reset, detach_reset, alpha)

    @property
    def leak(self) -> float:
        return 1.0


class PLIF(LIF):
    """LIF whose leak is learned: 1/tau = sigmoid(w)."""

    def __init__(
        self,
        init_tau: float = 2.0,
        decay_input: bool = True,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        detach_reset: bool = True,
        alpha: float = 2.0,
    ) -> None:
        super().__init__(init_tau, decay_input, v_threshold, v_reset, detach_reset, alpha)
        self.w = nn.Parameter(torch.tensor(-math.log(init_tau - 1.0)))

    @property
    def leak(self) -> Tensor:
        return 1.0 - self.w.sigmoid()

    @property
    def gain(self) -> float | Tensor:
        return self.w.sigmoid() if self.decay_input else 1.0

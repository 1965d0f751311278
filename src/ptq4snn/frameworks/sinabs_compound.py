"""sinabs's layers as canonical neurons. With a = exp(-1/tau), or 1 without tau_mem,

    i[t] = a_syn (i[t-1] + x[t])                                      (without tau_syn: x[t])
    H[t] = a_mem V[t-1] + (1 - a_mem) i[t]                            (norm_input; else + i[t])
    S[t] = H >= threshold,    V = H - subtract S, or 0 where S        (ExpLeak: neither; H is the output)
           floor(H / threshold), at least 0 and at most its maximum   (MultiSpike, MaxSpike)
    V[t] = max(V, min_v_mem)

The synapse keeps i with the membrane's gain in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.frameworks.adapter import NeuronSpec, Surrogate
from ptq4snn.frameworks.compound import Before, Compound, Stage, derived
from ptq4snn.frameworks.foreign import origins, reference_current, values
from ptq4snn.models.neuron import fire

__all__ = ["Forget", "SinabsCompound", "SumPool"]


class SinabsCompound(Compound):
    """forward(x[B, T, ...]) -> spikes or potentials of the same shape; squeezed: x[B T, ...]."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        layer: Any = module
        self.num_timesteps: int | None = getattr(layer, "num_timesteps", None)  # of a squeezed layer
        self.fires = layer.spike_fn is not None
        one, leak = values(1.0), _decay(layer, "mem")
        theta = values(layer.spike_threshold) if self.fires else one  # what never fires is measured in ones
        subtract = getattr(layer.reset_fn, "subtract_value", None)
        hard = hasattr(layer.reset_fn, "reset_value")
        reset: Any = "none" if not self.fires else "hard" if hard else "soft"
        rho = theta if subtract is None else values(subtract)
        gain = 1 - leak if layer.norm_input else one
        surrogate = _surrogate(layer, theta)
        synaptic = "i_syn" in layer._buffers
        floor = None if layer.min_v_mem is None else values(layer.min_v_mem)
        own = one if synaptic else gain
        spec = NeuronSpec(leak, own, theta, rho, ">=", reset, surrogate, floor=floor, most=_most(layer))
        self.membrane = Stage(spec, reads_potential=not self.fires)
        self.synapse: Stage | None = None
        if synaptic:
            decay, level = _decay(layer, "syn"), reference_current(theta, leak)
            spec = NeuronSpec(
                decay, decay * gain, level, level, ">=", "none", surrogate, emits="current"
            )  # fmt: skip
            self.synapse = Stage(spec, factor=1 / gain if layer.norm_input else None)
        self.rec_connect: nn.Module | None = getattr(layer, "rec_connect", None)
        self.before = Before()
        self.forget = derived(Forget, _base(layer))(self)
        self.v_mem = self.i_syn = torch.zeros(0)
        self.reset()

    def reset_states(self, randomize: bool = False, value_ranges: Any = None) -> None:
        """Begin another sequence, from zeros."""
        self.rest()

    def forward(self, input_data: Tensor) -> Tensor:
        x, sample = input_data, input_data.shape[1:]
        if self.num_timesteps is not None:
            x = x.reshape(-1, self.num_timesteps, *sample)
        self.spikes = None  # sinabs feeds nothing back from call to call
        y = torch.stack([self._step(x_t) for x_t in x.unbind(1)], 1)
        return y if self.num_timesteps is None else y.flatten(0, 1)

    def _step(self, x: Tensor) -> Tensor:
        if self.rec_connect is not None:
            x = x + self.rec_connect(self.before(self.last_spikes(x))).reshape(x.shape)
        if self.synapse is not None:
            x, self.i_syn = self.synapse(x)
        spikes, self.v_mem = self.membrane(x)
        self.spikes = spikes
        return spikes if self.fires else self.v_mem


class Forget(nn.Module):
    """sinabs.reset_states looks for layers without children: it finds this one, which resets the whole."""

    __deepcopy__ = None  # copied like any module; sinabs's layers are built anew

    def __init__(self, home: SinabsCompound) -> None:
        nn.Module.__init__(self)
        self.home = (home,)  # in a tuple: not a child

    def __repr__(self) -> str:
        return "Forget()"

    def reset_states(self, randomize: bool = False, value_ranges: Any = None) -> None:
        self.home[0].reset_states()


class SumPool(Compound):
    def __init__(self, pool: Any) -> None:
        super().__init__()
        size = pool.kernel_size if isinstance(pool.kernel_size, tuple) else (pool.kernel_size,) * 2
        self.mean, self.count = nn.AvgPool2d(size, pool.stride, ceil_mode=pool.ceil_mode), size[0] * size[1]
        self.reset()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mean(x) * self.count
        return y


class _Fire(torch.autograd.Function):
    """u >= 0, with sinabs's gradient at the potential u + theta."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, theta: Tensor, slope: Callable[..., Tensor]) -> Tensor:
        ctx.save_for_backward(u)
        ctx.theta, ctx.slope = theta, slope
        return (u >= 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        theta = ctx.theta.to(u)
        return grad * ctx.slope(u + theta, theta), None, None


def _most(layer: Any) -> int | None:
    """Spikes of a step; None: any number."""
    if layer.spike_fn is None or getattr(layer.spike_fn, "__name__", "") == "SingleSpike":
        return 1
    most: int | None = getattr(layer.spike_fn, "max_num_spikes_per_bin", None)  # MultiSpike has none
    return most


def _surrogate(layer: Any, theta: Tensor) -> Surrogate:
    slope = layer.surrogate_grad_fn
    if slope is None:
        return lambda u: fire(u, 2.0)
    return lambda u: _Fire.apply(u, theta, slope)  # type: ignore[no-untyped-call]


def _decay(layer: Any, which: str) -> Tensor:
    """exp(-1/tau) in float64, as a model in float64 computes it; 1 where there is no time constant."""
    if which == "mem" and any(c.__name__.startswith("IAF") for c in origins(layer, "sinabs")):
        return values(1.0)
    if layer.train_alphas:
        return values(getattr(layer, f"alpha_{which}"))
    return torch.exp(-1.0 / values(getattr(layer, f"tau_{which}")))


def _base(layer: nn.Module) -> type:
    return next(c for c in origins(layer, "sinabs") if c.__name__ == "StatefulLayer")

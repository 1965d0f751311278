"""Nodes of a NIR graph as modules: projections, pools, and canonical neurons discretised by forward Euler.

    LIF       v[t] = (1 - dt / tau) v[t-1] + r dt / tau x[t]
    CubaLIF   I[t] = (1 - dt / tau_syn) I[t-1] + w_in dt / tau_syn x[t]
              v[t] = (1 - dt / tau_mem) v[t-1] + r dt / tau_mem I[t]
    IF        v[t] = v[t-1] + r x[t]                        spikes where v > v_threshold

The current of a step reaches the membrane in the same step, as in snnTorch and Norse. Rockpool writes NIR
for other equations than these, without saying so; rule "rockpool" computes what its LIFTorch computes:

    CubaLIF   I[t] = exp(-dt / tau_syn) (I[t-1] + w_in x[t])
              v[t] = exp(-dt / tau_mem) v[t-1] + I[t]        spikes where v >= v_threshold; r is not read
    LIF       v[t] = exp(-dt / tau) v[t-1] + x[t]            (LIFNeuronTorch)
    LI        v[t] = exp(-dt / tau) (v[t-1] + x[t])          (ExpSynTorch)

A reset to v_reset is
"hard", a reset by subtraction "soft": NIR says the first; files written before it did mean either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptq4snn.errors import UnsupportedModel, UnsupportedNeuron
from ptq4snn.frameworks.adapter import Comparator, NeuronSpec, Reset
from ptq4snn.frameworks.compound import Compound, OneToOne, Stage
from ptq4snn.frameworks.foreign import reference_current
from ptq4snn.models.neuron import fire

__all__ = ["READOUTS", "Settings", "is_neuron", "module_of", "reals"]

PROJECTIONS = ("Affine", "Linear", "Conv1d", "Conv2d")
NEURONS = ("IF", "LIF", "CubaLIF", "LI", "CubaLI", "I")
READOUTS = ("LI", "CubaLI", "I")  # without a threshold: their membrane is what they give
SHARPNESS = 2.0  # of the surrogate gradient; a NIR file has none


@dataclass(frozen=True)
class Settings:
    """What a NIR file leaves open: the length of a step, the reset of files that do not say it, and by which
    equations it was trained."""

    dt: float | None
    reset: Reset | None
    rule: str  # of the equations: "euler" or "rockpool"
    whole: bool  # neurons take whole sequences [T, B, ...]


def is_neuron(node: Any) -> bool:
    return type(node).__name__ in NEURONS


def module_of(name: str, node: Any, settings: Settings) -> nn.Module:
    """The module that computes a node, or a refusal that names it."""
    kind = type(node).__name__
    if kind in PROJECTIONS:
        return _projection(name, node)
    if kind in NEURONS:
        return _neuron(name, node, settings)
    if kind in ("SumPool2d", "AvgPool2d"):
        return _Pool(node)
    if kind == "Flatten":
        return nn.Flatten(1)
    if kind == "Scale":
        return OneToOne(_tensor(node.scale)) if np.size(node.scale) > 1 else _Times(float(node.scale))
    if kind in ("Input", "Output"):
        return nn.Identity()
    raise UnsupportedModel(
        f"the node '{name}' of the NIR graph is a {kind}, which has no integer form here; supported are "
        f"{', '.join((*PROJECTIONS, *NEURONS))}, pools, Flatten, Scale and Delay"
    )


def reals(x: Any, kind: Any = np.float64) -> Any:
    """As an array of floats; complex numbers, texts and objects are none."""
    found = np.asarray(x)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"{found.dtype} is no type of real numbers")
    return found.astype(kind)


def _tensor(x: Any) -> Tensor:
    return torch.as_tensor(reals(x, np.float32))


def _plain(x: Any) -> Any:
    """NumPy's numbers and strings as Python's."""
    if isinstance(x, bytes):
        return x.decode()
    return tuple(int(i) for i in np.ravel(x)) if not isinstance(x, str) else x


def _projection(name: str, node: Any) -> nn.Module:
    kind, weight = type(node).__name__, _tensor(node.weight)
    bias = getattr(node, "bias", None)
    bias = None if bias is None or np.size(bias) == 0 or not np.any(bias) else _tensor(bias)
    if kind in ("Affine", "Linear"):
        if weight.dim() != 2:
            raise UnsupportedModel(f"the weight of '{name}' has {weight.dim()} axes; a matrix has two")
        made: Any = nn.utils.skip_init(nn.Linear, *reversed(weight.shape), bias=bias is not None)
    else:
        groups = int(np.ravel(node.groups)[0])
        settings = {k: _plain(getattr(node, k)) for k in ("stride", "padding", "dilation")}
        made = nn.utils.skip_init(
            nn.Conv1d if kind == "Conv1d" else nn.Conv2d, weight.shape[1] * groups, weight.shape[0],
            tuple(weight.shape[2:]), groups=groups, bias=bias is not None, **settings,
        )  # fmt: skip
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made  # type: ignore[no-any-return]


class _Pool(nn.Module):
    """Sums (or means) over windows."""

    def __init__(self, node: Any) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = (
            _plain(getattr(node, k)) for k in ("kernel_size", "stride", "padding")
        )
        self.sums = type(node).__name__ == "SumPool2d"

    def forward(self, x: Tensor) -> Tensor:
        y = F.avg_pool2d(x, self.kernel, self.stride, self.padding)
        return y * float(np.prod(self.kernel)) if self.sums else y


class _Times(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


def _values(x: Any) -> Tensor:
    """A neuron's parameter in float64, one number where all are equal."""
    array = torch.as_tensor(np.asarray(x, dtype=np.float64))
    flat = array.reshape(-1)
    return flat[0].clone() if bool((flat == flat[0]).all()) else array


def _surrogate(u: Tensor) -> Tensor:
    return fire(u, SHARPNESS)


class Cascade(Compound):
    """A synapse and the membrane behind it."""

    def __init__(self, synapse: Stage, membrane: Stage) -> None:
        super().__init__()
        self.synapse, self.membrane = synapse, membrane
        self.reset()

    def forward(self, x: Tensor) -> Any:
        return self.membrane(self.synapse(x)[0])


def _neuron(name: str, node: Any, settings: Settings) -> nn.Module:
    kind = type(node).__name__
    reads = kind in READOUTS
    leak, gain = _membrane(name, node, settings)
    theta = _values(getattr(node, "v_threshold", 1.0))
    reset: Reset = "none" if reads else _reset(name, node, settings)
    fires: Comparator = ">=" if settings.rule == "rockpool" else ">"
    one = torch.ones((), dtype=torch.float64)
    if not kind.startswith("Cuba"):
        spec = NeuronSpec(leak, gain, theta, theta, fires, reset, _surrogate)
        return Stage(spec, whole=settings.whole)
    decay, share = _decay(name, settings, _values(node.tau_syn))
    level = reference_current(theta, leak)
    current = gain * share * _values(node.w_in)  # both gains in front of the synapse
    spec = NeuronSpec(decay, current, level, level, ">", "none", _surrogate, emits="current")
    membrane = NeuronSpec(leak, one, theta, theta, fires, reset, _surrogate)
    return Cascade(Stage(spec, whole=settings.whole), Stage(membrane, whole=settings.whole))


def _decay(name: str, settings: Settings, tau: Tensor) -> tuple[Tensor, Tensor]:
    """What is left of a state after a step, and the share of an input that a state with a gain of 1 takes."""
    if settings.dt is None:
        raise UnsupportedNeuron(
            f"the neuron '{name}' has time constants, and a NIR file does not say how long a step is: give "
            "dt in the same unit (--dt on the command line), such as the NIR paper's 1e-4"
        )
    share = settings.dt / tau
    whole = 1.0 if settings.rule == "euler" else math.inf
    if bool((share <= 0).any()) or bool((share > whole).any()):
        raise UnsupportedNeuron(
            f"a time constant of '{name}' is shorter than the step dt = {settings.dt:g}; give a smaller dt"
        )
    if settings.rule == "rockpool":
        return torch.exp(-share), torch.exp(-share)
    return 1 - share, share


def _membrane(name: str, node: Any, settings: Settings) -> tuple[Tensor, Tensor]:
    """Leak and gain."""
    kind, r = type(node).__name__, _values(node.r)
    if kind in ("IF", "I"):
        return torch.ones((), dtype=torch.float64), r
    if np.any(node.v_leak):
        raise UnsupportedNeuron(
            f"the neuron '{name}' leaks towards v_leak, which is not 0; add v_leak / r to the bias in front "
            "of it"
        )
    decay, share = _decay(name, settings, _values(node.tau if kind in ("LIF", "LI") else node.tau_mem))
    if settings.rule == "rockpool":
        return decay, share if kind == "LI" else torch.ones((), dtype=torch.float64)
    return decay, share * r


def _reset(name: str, node: Any, settings: Settings) -> Reset:
    if settings.reset is None:
        raise UnsupportedNeuron(
            f'a NIR file does not say how \'{name}\' was trained to reset: give reset="subtract" or "zero" '
            "(--reset on the command line)"
        )
    if settings.reset == "hard" and np.any(getattr(node, "v_reset", 0.0)):
        raise UnsupportedNeuron(f"the neuron '{name}' resets to v_reset, which is not 0; shift its threshold")
    return settings.reset

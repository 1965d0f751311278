"""Networks of published shapes with synthetic weights that fire at a wanted rate, and rates as measured.

Weights are drawn at random. Then, in one forward pass and in the order of execution: every BatchNorm takes
mean and variance of what reaches it; every neuron behind a single BatchNorm has its gain (weight and bias of
the norm) scaled until its mean firing is the target; a neuron behind a stream, which several norms write to,
has its threshold scaled instead: the same up to a scale of the stream.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.discovery.discover import discover
from ptq4snn.frameworks import Shell, adapter_of
from ptq4snn.models.neuron import LIF
from ptq4snn.models.sdt import SpikeDrivenTransformer
from ptq4snn.models.sew_resnet import SEWResNet

TUNING_IMAGES = 16
BISECTIONS = 18
CHUNK = 8  # samples at a time: some are large
FIXED = "talking_heads_lif"  # counts of spikes against a threshold that no gain moves


def images(count: int, test: bool = True) -> Tensor:
    """Normalised CIFAR-10 images of the embedded sample [count, 3, 32, 32]."""
    calibration, held_out, _ = default_sample()
    return normalize((held_out if test else calibration)[:count])


def sew_resnet18(rate: float, width: int = 64, T: int = 4) -> nn.Module:
    """SEW-ResNet18, CIFAR stem, ADD, LIF; `rate` from 0 to 1."""
    return tuned(SEWResNet(widths=(width, 2 * width, 4 * width, 8 * width), T=T), rate)


def sew_resnet8(rate: float, width: int, T: int = 4) -> nn.Module:
    """A stem and three blocks at 32, 16 and 8 pixels, all layers of one width."""
    shape = {"widths": (width,) * 3, "blocks": (1, 1, 1), "strides": (1, 2, 2)}
    return tuned(SEWResNet(**shape, T=T), rate)  # type: ignore[arg-type]


def sdt_2_256(rate: float, T: int = 4) -> nn.Module:
    return tuned(SpikeDrivenTransformer(width=256, depth=2, T=T), rate)


def tuned(model: nn.Module, rate: float, seed: int = 0, x: Tensor | None = None) -> nn.Module:
    """The model in evaluation mode, its neurons firing at `rate` on x, else on the tuning images."""
    draw(model, torch.Generator().manual_seed(seed))
    model.eval()
    x = images(TUNING_IMAGES, test=False) if x is None else x
    norm_of = single_norms(model, x[:2])
    handles = []
    for name, m in model.named_modules():
        if isinstance(m, _BatchNorm):
            handles.append(m.register_forward_pre_hook(settle_norm))
        elif isinstance(m, LIF) and not name.endswith(FIXED):
            handles.append(m.register_forward_hook(partial(settle_neuron, rate, norm_of.get(name))))
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    return model


def draw(model: nn.Module, g: torch.Generator) -> None:
    """Weights of variance 2 / fan-in; norms whose channels differ."""
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                fan_in = m.weight[0].numel()
                m.weight.copy_(torch.randn(m.weight.shape, generator=g) * math.sqrt(2 / fan_in))
                if m.bias is not None:
                    m.bias.zero_()
            elif isinstance(m, _BatchNorm):
                m.weight.copy_(1 + 0.1 * torch.randn(m.weight.shape, generator=g))
                m.bias.copy_(0.2 * torch.randn(m.bias.shape, generator=g))


def single_norms(model: nn.Module, x: Tensor) -> dict[str, _BatchNorm]:
    """The BatchNorm in front of every neuron that one projection alone feeds, and that nothing else reads."""
    norms = {}
    for name, info in discover(model, x).neurons.items():
        if info.kind == "pair" and info.stream is None and len(info.norms) == 1:
            module = model.get_submodule(info.norms[0])
            assert isinstance(module, _BatchNorm)
            norms[name] = module
    return norms


def settle_norm(m: nn.Module, args: tuple[Tensor]) -> None:
    """Statistics of what reaches the norm."""
    assert isinstance(m, _BatchNorm)
    (x,) = args  # [N, C, ...]
    others = [d for d in range(x.dim()) if d != 1]
    m.running_mean = x.mean(others)
    m.running_var = x.var(others, correction=0) + 1e-3


def settle_neuron(
    rate: float, norm: _BatchNorm | None, m: nn.Module, args: tuple[Tensor], _: Tensor
) -> Tensor:
    """Bisect the gain in front of the neuron; hand on the spikes it then fires."""
    assert isinstance(m, LIF)
    low, high = -12.0, 12.0  # of log2(gain): firing grows with the gain
    for _step in range(BISECTIONS):
        middle = (low + high) / 2
        if float(m.forward(args[0] * 2.0**middle).mean()) < rate:
            low = middle
        else:
            high = middle
    gain = 2.0**high
    if norm is None:
        m.v_threshold /= gain
        return m.forward(args[0])
    norm.weight.mul_(gain)
    norm.bias.mul_(gain)
    return m.forward(args[0] * gain)


def firing_rates(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Mean firing of every neuron for each sample of x [B], in the order of execution."""
    rates: dict[str, Tensor] = {}
    handles = [
        m.register_forward_hook(partial(_note, rates, name))
        for name, m in model.named_modules()
        if adapter_of(m) is not None or isinstance(m, Shell)
    ]
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    return rates


def _note(rates: dict[str, Tensor], name: str, _: nn.Module, __: object, spikes: Tensor) -> None:
    fired = spikes.as_subclass(Tensor) != 0  # [T, B, ...]
    rates[name] = fired.float().movedim(1, 0).flatten(1).mean(1)


def typical_first(model: nn.Module, x: Tensor) -> Tensor:
    """Samples in another order: those that fire most nearly as all do on average come first."""
    parts = [torch.stack(list(firing_rates(model, part).values())).mean(0) for part in x.split(CHUNK)]
    rates = torch.cat(parts)  # [B]
    return x[(rates - rates.mean()).abs().argsort(stable=True)]

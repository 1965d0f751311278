"""Fold BatchNorm and the neuron's gain into the projection.

    BN behind a projection:   W <- g W,   b <- g b + (beta - g mean) / c,      g = gamma / sqrt(var + eps)

where c is what a constant projection output has become at the BatchNorm (1, unless sums lie between).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ptq4snn.discovery.batchnorm import batch_norm, left_of_norm
from ptq4snn.discovery.chains import carry_constants
from ptq4snn.discovery.discover import Discovery
from ptq4snn.discovery.editing import ChannelAffine, leave_out
from ptq4snn.discovery.exclusion import advice
from ptq4snn.discovery.info import Norm
from ptq4snn.discovery.mirror import Mirror, norm_axis
from ptq4snn.discovery.projection_modules import channel_axis
from ptq4snn.discovery.surgery import copy_model, replace_modules
from ptq4snn.errors import FoldingError, UnsupportedOperation
from ptq4snn.frameworks import NeuronSpec, Shell, adapter_of
from ptq4snn.frameworks.core import FloatCore, NeuronCore
from ptq4snn.numerics.nearest import input_scales
from ptq4snn.numerics.scales import row_blocks

__all__ = ["Folded", "Grid", "fold", "fold_in_place", "store_snapped"]

Grid = tuple[Tensor, float]  # step [C] of a projection's weight, unit of what it reads


@dataclass(frozen=True)
class MirrorSpec:
    """The sign and shift [C] that stay in the place of a BatchNorm behind a max-pool (modules/mirror.py)."""

    projection: str
    sign: Tensor
    shift: Tensor
    axis: int


@dataclass(frozen=True)
class Folded:
    """The float model in canonical form: no BatchNorm behind projections, neurons with float cores."""

    model: nn.Module
    discovery: Discovery
    specs: dict[str, NeuronSpec]  # what is left of the neurons: a folded gain is 1
    mirrors: dict[str, MirrorSpec]  # BatchNorms that could not be folded whole
    places: dict[str, Tensor]  # [*positions, C] biases of positions, added to projections' outputs
    steps: dict[str, Grid] = field(default_factory=dict)  # of the twin's weights (discovery/twin.py)

    def core(self, neuron: str) -> NeuronCore:
        shell = self.model.get_submodule(neuron)
        assert isinstance(shell, Shell)
        return shell.core

    def projection(self, name: str) -> nn.Module:
        return self.model.get_submodule(name)

    def weight(self, name: str) -> Tensor:
        """Folded weight [C, ...], detached."""
        w: Tensor = self.projection(name).weight  # type: ignore[assignment]
        return w.detach()

    def bias(self, name: str) -> Tensor:
        """Folded bias [C], zeros where there is none."""
        b: Tensor | None = self.projection(name).bias  # type: ignore[assignment]
        return b.detach() if b is not None else torch.zeros_like(self.weight(name).flatten(1)[:, 0])

    def store(self, name: str, weight: Tensor, bias: Tensor | None = None) -> None:
        """Other numbers for a projection, on its steps if it has some; without a bias it keeps its own."""
        store_snapped(self.projection(name), weight, bias, self.steps.get(name))


class AddPlaces:
    """A forward hook of a projection: each position of its output gets a bias of its own."""

    def __init__(self, places: Tensor, axis: int) -> None:
        self.places = places.movedim(-1, axis)  # as the output has it

    def __call__(self, _m: nn.Module, _args: Any, out: Tensor) -> Tensor:
        return out + self.places.to(out)


def fold(model: nn.Module, discovery: Discovery, dtype: torch.dtype | None = None) -> Folded:
    """A folded copy of `model`; the original is not touched, and what is not folded is held by both."""
    folded = copy_model(model, model.parameters())
    return fold_in_place(folded if dtype is None else folded.to(dtype), discovery)


def fold_in_place(folded: nn.Module, discovery: Discovery) -> Folded:
    """The model itself, folded; parameters are exchanged, never written into."""
    specs = dict(discovery.specs)
    mirrors, places = {}, {}
    for name, info in discovery.projections.items():
        weight, bias, mirror = _folded_norms(folded, name, info.norms)
        gain = _shared_gain(discovery, name, len(weight)).to(weight)  # [C]
        if mirror is not None:
            _check_mirror(discovery, name, mirror)
            mirrors[info.norms[-1].name] = replace(mirror, shift=mirror.shift * gain)
        if info.columns is not None:
            weight = weight * input_scales(weight, info.columns.to(weight))
        rows = gain.view(-1, *[1] * (weight.dim() - 1))
        store_snapped(folded.get_submodule(name), weight * rows, bias * gain if bias is not None else None)
        if info.places is not None:
            places[name] = info.places.to(gain) * gain
            module = folded.get_submodule(name)
            module.register_forward_hook(AddPlaces(places[name], channel_axis(module)))
        if bool((gain != 1).any()):
            for n in info.feeds:
                specs[n] = replace(specs[n], gain=torch.ones_like(discovery.specs[n].gain))
    carry_constants(folded, discovery.projections, {o.projection for o in discovery.outputs})
    leave_out(folded, ("position",), discovery.folded_calls)
    new: dict[str, nn.Module] = {n: left_of_norm(folded.get_submodule(n)) for n in discovery.norms}
    new |= {n: Mirror(m.sign, m.shift, m.axis) for n, m in mirrors.items()}
    for name in discovery.neurons:
        module = folded.get_submodule(name)
        adapter = adapter_of(module)
        assert adapter is not None
        new[name] = adapter.shell(module, FloatCore(specs[name]))
    replace_modules(folded, new)
    return Folded(folded.requires_grad_(False), discovery, specs, mirrors, places)


def _folded_norms(
    model: nn.Module, name: str, norms: tuple[Norm, ...]
) -> tuple[Tensor, Tensor | None, MirrorSpec | None]:
    """Weight and bias with the BatchNorms in them, and what is left of the last one."""
    module = model.get_submodule(name)
    weight: Tensor = module.weight.detach().double()  # type: ignore[operator]
    bias: Tensor | None = module.bias  # type: ignore[assignment]
    bias = bias.detach().double() if bias is not None else None
    for norm in norms:
        bn = batch_norm(model.get_submodule(norm.name))
        if not isinstance(bn, ChannelAffine) and bn.running_mean is None:
            raise FoldingError(
                f"the BatchNorm '{norm.name}' keeps no running statistics and cannot be folded into "
                f"'{name}'; keep it in float: {advice([norm.name])}"
            )
        g, shift = _affine(bn, norm)
        if norm.after_max and bool((g < 0).any()):
            mirror = MirrorSpec(name, g.sign(), shift * norm.constant, norm_axis(bn))
            if norm is not norms[-1] or norm.constant != 1.0 or norm.channels != tuple(range(len(g))):
                raise UnsupportedOperation(_unfoldable(name, norm, g))
            size = g.abs()
            bias = size * bias if bias is not None else None
            return weight * size.view(-1, *[1] * (weight.dim() - 1)), bias, mirror
        weight = weight * g.view(-1, *[1] * (weight.dim() - 1))
        bias = shift if bias is None else g * bias + shift
    return weight, bias, None


def _unfoldable(name: str, norm: Norm, g: Tensor) -> str:
    return (
        f"the BatchNorm '{norm.name}' behind a max-pool has negative gains in channels "
        f"{(g < 0).nonzero().flatten().tolist()[:8]} of '{name}'; put it in front of the pool"
    )


def _check_mirror(d: Discovery, name: str, mirror: MirrorSpec) -> None:
    """Signs can stay in front of a pair's own neurons only."""
    info = d.projections[name]
    norm = info.norms[-1]
    shared = [p.name for p in d.projections.values() if norm.name in {n.name for n in p.norms}]
    if info.role != "pair" or shared != [name] or any(o.projection == name for o in d.outputs):
        raise UnsupportedOperation(_unfoldable(name, norm, mirror.sign))


def _affine(bn: Any, norm: Norm) -> tuple[Tensor, Tensor]:
    """Gain and shift [C] of a BatchNorm for the output channels of its projection."""
    if isinstance(bn, ChannelAffine):
        g, beta, mean = bn.gain.double(), bn.shift.double(), torch.zeros_like(bn.gain, dtype=torch.float64)
    else:
        g, mean = 1 / torch.sqrt(bn.running_var.double() + bn.eps), bn.running_mean.double()
        beta = torch.zeros_like(g) if bn.bias is None else bn.bias.detach().double()
        g = g if bn.weight is None else g * bn.weight.detach().double()
    shift = (beta - g * mean) / norm.constant
    channels = torch.tensor(norm.channels, device=g.device)
    none = channels < 0
    g, shift = g[channels.clamp_min(0)], shift[channels.clamp_min(0)]
    return g.masked_fill(none, 1.0), shift.masked_fill(none, 0.0)


def _shared_gain(d: Discovery, name: str, channels: int) -> Tensor:
    """The gain [C] that all readers of a pair's projection have in common, 1 where there is none."""
    info = d.projections[name]
    one = torch.ones(channels, dtype=torch.float64)
    same = all(d.projections[p].feeds == info.feeds for n in info.feeds for p in d.neurons[n].projections)
    if info.role != "pair" or not same or any(o.projection == name for o in d.outputs):
        return one
    gains = {float(g) if g.dim() == 0 else None for g in (d.specs[n].gain for n in info.feeds)}
    if len(gains) > 1:
        return one
    gain = gains.pop()
    return one * gain if gain is not None else _gain_of_channels(d, name, one)


def _gain_of_channels(d: Discovery, name: str, one: Tensor) -> Tensor:
    """A gain for each channel of a neuron, for the channels of the projection that alone feeds it, or of
    those that it sums; 1 where it differs inside of a channel, or where several neurons read."""
    info = d.projections[name]
    if len(info.feeds) > 1:
        return one
    neuron = d.neurons[info.feeds[0]]
    gain = d.specs[neuron.name].gain
    if gain.numel() != neuron.layout.channels and list(gain.shape) != list(neuron.layout.shape):
        return one
    rows = neuron.layout.by_channel(gain.double().cpu().expand(neuron.layout.shape).unsqueeze(0))[0]
    mine = neuron.source_projection == neuron.projections.index(name)
    mine = mine | bool(info.tied)  # all that are summed have the same channels
    if not bool((rows == rows[:, :1]).all()) or not bool(mine.all()):
        return one
    return one.scatter(0, neuron.source_channel, rows[:, 0])


def store_snapped(module: nn.Module, weight: Tensor, bias: Tensor | None, grid: Grid | None = None) -> None:
    """Put weight [C, ...] and bias [C] into a projection, in its type and on its grid."""
    like: Tensor = module.weight  # type: ignore[assignment]
    if grid is not None:
        step, unit = grid[0].to(weight.device), grid[1]
        rows = step.view(-1, *[1] * (weight.dim() - 1))
        blocks = zip(row_blocks(weight, weight), row_blocks(rows, weight), strict=True)
        weight = torch.cat([(w.double() / r).round_().mul_(r).to(like) for w, r in blocks])
        bias = None if bias is None else (bias.to(step) / (step * unit)).round() * (step * unit)
    module.weight = nn.Parameter(weight.to(like), requires_grad=False)
    if bias is not None:
        module.bias = nn.Parameter(bias.to(like), requires_grad=False)

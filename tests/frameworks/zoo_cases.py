"""Other people's networks, unmodified but for their size: SpikingJelly's zoo, what its ann2snn makes, the
tutorials of snnTorch. `outcome` says what becomes of one; docs/zoo.md is made of it."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import PTQ4SNNError
from ptq4snn.runtime.native import available

__all__ = ["RUNS", "Case", "documented", "outcome", "snntorch_cases", "spikingjelly_cases"]

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
RUNS = "runs"

STEPS = 4


@dataclass(frozen=True)
class Case:
    """A network and samples for it; `how` goes to quantize."""

    name: str
    build: Callable[[], nn.Module]
    x: Callable[[], Tensor]
    how: dict[str, Any] = field(default_factory=dict)
    gain: float = 1.0  # of its matrices, where without training nothing would fire


def documented(family: str) -> dict[str, str]:
    """What docs/zoo.md says of every network of a family."""
    rows = [
        line.strip("|").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line
    ]
    cells = [[c.strip() for c in row] for row in rows]
    return {row[1]: row[2] for row in cells if row[0] == family}


def outcome(case: Case, folder: Path) -> str:
    """RUNS where the saved and loaded bundle, the simulation and the runtime agree in every bit; else the
    sentence that refuses the network."""
    net, x = _built(case)
    try:
        q = ptq4snn.quantize(net, x, "fast+w4m4", rounding="nearest", progress=False, **case.how)
    except PTQ4SNNError as why:
        return str(why)
    if q.program is None:
        return f"simulated; no program: {q.not_lowered}"
    file = folder / "q.ptq"
    q.save(file)
    expected = _tensors(q.sequence(x) if q.one_step else q(x))
    assert any(bool(t.any()) for t in expected), f"{case.name} is silent"
    for kernels in ("numpy", *available()):
        found = runtime.load(file, kernels=kernels)(x.numpy())
        found = found if isinstance(found, tuple) else (found,)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(b, a.numpy())
    if not q.one_step:
        again = _tensors(ptq4snn.load(file, copy.deepcopy(net))(x))
        assert all(torch.equal(a, b) for a, b in zip(expected, again, strict=True))
    return RUNS


def _tensors(out: Any) -> list[Tensor]:
    return [t for t in tree_flatten(out)[0] if isinstance(t, Tensor)]


def _built(case: Case) -> tuple[nn.Module, Tensor]:
    """Seeded, with BatchNorms that look trained, so that every layer fires; nothing global is touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = case.build().eval()
        for m in net.modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_var is not None:
                m.running_var.uniform_(0.05, 0.2)
                if m.weight is not None:
                    nn.init.uniform_(m.weight, 0.8, 1.6)
                    nn.init.normal_(m.bias, 0.2, 0.2)
            elif isinstance(m, (nn.Linear, nn.Conv2d)):
                m.weight.data *= case.gain
        torch.manual_seed(2)
        return net, case.x()


def _drawn(net: nn.Module) -> nn.Module:
    """With weights as layers begin with."""
    for m in net.modules():
        begin: Any = getattr(m, "reset_parameters", None)
        if begin is not None:
            begin()
    return net


def _images(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(*shape)


def _without_extras() -> None:
    """The zoo wants a progress bar, and one function of torchvision that fetches weights."""
    try:
        import tqdm  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        _stub("tqdm").tqdm = lambda x, *_a, **_k: x  # type: ignore[attr-defined]
    try:
        import requests  # noqa: F401
    except ImportError:
        _stub("requests")
    try:
        import torchvision.models  # type: ignore[import-not-found]  # noqa: F401
    except (ImportError, RuntimeError):
        _stub("torchvision")
        _stub("torchvision._internally_replaced_utils").load_state_dict_from_url = None  # type: ignore[attr-defined]


def _stub(name: str) -> types.ModuleType:
    """An empty module of that name."""
    made = sys.modules[name] = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    return made


def spikingjelly_cases() -> list[Case]:
    """Of the generation that is installed. Samples are [T, B, ...] unless the network repeats them itself."""
    _without_extras()
    from spikingjelly.activation_based import functional, layer, neuron
    from spikingjelly.activation_based.model import (
        parametric_lif_net,
        sew_resnet,
        spiking_resnet,
        spiking_vgg,
    )

    def multi(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def made() -> nn.Module:
            net = make()
            functional.set_step_mode(net, "m")
            return net

        return made

    images, time_first = _images(STEPS, 6, 3, 16, 16), {"batch_axis": 1}
    lif, small = {"spiking_neuron": neuron.LIFNode}, {"num_classes": 5}
    cases = [
        Case(
            f"{m.__name__.rpartition('.')[2]}, {block.__name__}",
            multi(partial(net, block, [1, 1, 1, 1], **small, **more)),
            images, time_first,
        )
        for m, net, more in (
            (spiking_resnet, spiking_resnet.SpikingResNet, lif),
            (sew_resnet, sew_resnet.SEWResNet, {"cnf": "ADD", **lif}),
        )
        for block in (m.BasicBlock, m.Bottleneck)
    ]  # fmt: skip
    for norm in (False, True):

        def vgg(norm: bool = norm) -> nn.Module:
            cfg, kind = [8, "M", 8, "M", 512], layer.BatchNorm2d if norm else None
            with torch.device("meta"):  # but for its classifier of 119 million weights
                net = spiking_vgg.SpikingVGG(cfg, norm, kind, init_weights=False, **small, **lif)
            net.classifier = layer.Linear(512 * 49, 5)
            return _drawn(net.to_empty(device="cpu"))

        made = multi(vgg)
        name = f"spiking_vgg{', BatchNorm' if norm else ''}"
        cases.append(Case(name, made, _images(STEPS, 6, 3, 28, 28), time_first, 1.0 if norm else 3.0))
    plif = {"spiking_neuron": neuron.ParametricLIFNode}
    nets = parametric_lif_net
    for net, size in ((nets.MNISTNet, (1, 28, 28)), (nets.CIFAR10Net, (3, 32, 32))):
        made = multi(partial(net, channels=8, **plif))
        cases.append(
            Case(f"parametric_lif_net.{net.__name__}", made, _images(STEPS, 4, *size), time_first, 8.0)
        )
    return [*cases, *_newer_cases(), *_converted_cases()]


def _newer_cases() -> list[Case]:
    """What came with 2.0.0."""
    try:
        from spikingjelly.activation_based.model import (
            masnn,
            maxformer,
            ms_resnet,
            qkformer,
            spike_driven_transformer,
            spikformer,
        )
    except ImportError:
        return []
    small = {"T": STEPS, "num_classes": 5}
    resnet = {**small, "layers": (1, 1, 1), "base_channels": 8, "stem_kernel_size": 3, "stem_stride": 1}
    images = _images(8, 3, 16, 16)
    return [
        Case("ms_resnet.MSResNet", lambda: ms_resnet.MSResNet(**resnet), images),
        Case("ms_resnet.MaxResNet", lambda: ms_resnet.MaxResNet(**resnet), images),
        Case("masnn.AttMSResNet", lambda: masnn.AttMSResNet(**resnet), images),
        Case(
            "spikformer.Spikformer",
            lambda: spikformer.Spikformer(
                img_size_h=32, img_size_w=32, patch_size=4, embed_dims=32, num_heads=4, depths=1, **small
            ),
            _images(4, 3, 32, 32),
            gain=8.0,
        ),
        Case(
            "qkformer.QKFormer",
            lambda: qkformer.QKFormer(embed_dims=32, num_heads=(1, 2, 4), depths=(1, 1, 1), **small),
            _images(4, 3, 32, 32),
            gain=2.0,
        ),
        Case(
            "spike_driven_transformer.SpikeDrivenTransformer",
            lambda: spike_driven_transformer.SpikeDrivenTransformer(
                embed_dims=32, num_heads=4, depths=1, **small
            ),
            _images(4, 3, 32, 32),
            gain=2.0,
        ),
        Case(
            "maxformer.MaxFormer",
            lambda: maxformer.MaxFormer(embed_dims=32, depths=(1, 1, 1), **small),
            _images(4, 3, 32, 32),
            gain=2.0,
        ),
    ]


class _Ann(nn.Module):
    """The CNN of ann2snn's example, smaller."""

    def __init__(self, pool: type[nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in ((1, 8), (8, 8), (8, 16)):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), pool(2)]
        self.network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 5), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(x)
        return out


class _Normalised(_Ann):
    """With MNIST's usual normalisation in its forward."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - 0.1307) / 0.3081)


def _converted_cases() -> list[Case]:
    """IF nodes with soft reset between scalers, one step a call, T = 32."""
    from spikingjelly.activation_based import ann2snn

    def converted(pool: type[nn.Module], kind: type[_Ann] = _Ann, **more: Any) -> nn.Module:
        ann, data = kind(pool).eval(), [(torch.rand(32, 1, 16, 16), torch.zeros(32))]
        if hasattr(ann2snn, "RateCodingRecipe"):  # 2.0.0
            recipe = ann2snn.RateCodingRecipe(data, mode="99.9%", **more)
            return ann2snn.FXConverter(recipe).convert(ann).eval()
        return ann2snn.Converter(data, mode="99.9%")(ann).eval()

    x, how = _images(16, 1, 16, 16), {"steps": 32}
    cases = [
        Case("ann2snn, mean pools", lambda: converted(nn.AvgPool2d), x, how),
        Case("ann2snn, max-pools", lambda: converted(nn.MaxPool2d), x, how),
    ]
    if not hasattr(ann2snn, "RateCodingRecipe"):  # the newer converter takes no arithmetic between layers
        made = partial(converted, nn.AvgPool2d, _Normalised)
        cases.append(Case("ann2snn, input normalised in forward", made, x, how))
    else:
        by_channel = {"channel_wise": True}
        cases.append(Case("ann2snn, by channel", lambda: converted(nn.AvgPool2d, **by_channel), x, how))
    return cases


class _Recorded(nn.Module):
    """A tutorial's forward: a loop over time that keeps spikes and membranes of the last layer."""

    def __init__(self, layers: list[nn.Module], steps: int, still: bool) -> None:
        super().__init__()
        self.layers, self.steps, self.still = nn.ModuleList(layers), steps, still

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        import snntorch

        state = {i: m.init_leaky() for i, m in enumerate(self.layers) if isinstance(m, snntorch.Leaky)}
        spk_rec, mem_rec = [], []
        for step in range(self.steps):
            y = x if self.still else x[step]
            for i, m in enumerate(self.layers):
                if i in state:
                    y, state[i] = m(y, state[i])
                else:
                    y = m(y)
            spk_rec.append(y)
            mem_rec.append(state[max(state)])
        return torch.stack(spk_rec), torch.stack(mem_rec)


class _Regression(_Recorded):
    """Tutorial on regression: the membrane of a last layer that never fires is the output."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[1]


class _Hidden(nn.Module):
    """nn.Sequential with init_hidden, and the tutorial's loop over the frames."""

    def __init__(self, net: nn.Sequential, population: int = 0) -> None:
        super().__init__()
        self.net, self.population = net, population

    def forward(self, x: Tensor) -> Any:  # [T, B, ...]
        from snntorch import utils

        utils.reset(self.net)
        rec = [self.net(frame) for frame in x]
        if not self.population:
            return torch.stack([spk for spk, _ in rec]), torch.stack([mem for _, mem in rec])
        spk = torch.stack([spk for spk, _ in rec])  # population coding: a class is a group of neurons
        return spk.sum(0).unflatten(1, (-1, self.population)).sum(2)


def snntorch_cases() -> list[Case]:
    """The tutorials' networks, smaller."""
    import snntorch as snn

    def leaky(beta: float = 0.95, **more: Any) -> nn.Module:
        return snn.Leaky(beta=beta, **more)

    def fully_connected() -> nn.Module:
        return _Recorded([nn.Linear(64, 48), leaky(), nn.Linear(48, 10), leaky()], 12, True)

    def convolutional() -> nn.Module:
        layers = [nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), leaky(0.5), nn.Conv2d(6, 12, 3), nn.MaxPool2d(2)]
        return _Recorded([*layers, leaky(0.5), nn.Flatten(), nn.Linear(12 * 4, 10), leaky(0.5)], 10, True)

    def hidden(population: int = 0) -> nn.Module:
        def one() -> nn.Module:
            return leaky(0.5, init_hidden=True)

        last = leaky(0.5, init_hidden=True, output=True)
        layers = [nn.Conv2d(2, 6, 5), one(), nn.MaxPool2d(2), nn.Conv2d(6, 12, 3), one(), nn.MaxPool2d(2)]
        features = 10 * population if population else 10
        return _Hidden(nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * 4, features), last), population)

    def regression() -> nn.Module:
        layers = [nn.Linear(1, 32), leaky(0.9), nn.Linear(32, 32), leaky(0.9), nn.Linear(32, 1)]
        return _Regression([*layers, leaky(0.9, reset_mechanism="none")], 20, False)

    events: Callable[[], Tensor] = lambda: (torch.rand(10, 12, 2, 16, 16) < 0.3).float()  # noqa: E731
    first = {"batch_axis": 1}
    return [
        Case("static MNIST, fully connected", fully_connected, lambda: 3 * torch.rand(32, 64)),
        Case("static MNIST, convolutional", convolutional, lambda: torch.rand(16, 1, 16, 16), gain=3.0),
        Case("N-MNIST, nn.Sequential with init_hidden", hidden, events, first, 3.0),
        Case("population coding", lambda: hidden(5), events, first, 3.0),
        Case("regression, membrane readout", regression, lambda: 2 * torch.rand(20, 16, 1), first),
    ]

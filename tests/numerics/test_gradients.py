"""Convolutions that a CPU without AVX-512 cannot be trusted with: none is differentiated by the project."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import ptq4snn
from ptq4snn.models.sew_resnet import SEWResNet
from ptq4snn.numerics.gradients import safe_gradients

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


class Faulty(TorchDispatchMode):
    """Convolutions of the shapes that oneDNN overruns its buffer with, whatever their memory format."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.found: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            weight, stride, padding, groups = args[1], args[3], args[4], args[8]
            small = weight.shape[1] < 8 and tuple(weight.shape[2:]) == (1, 1)
            if small and max(stride) > 1 and max(padding) == 0 and groups == 1:
                self.found.append(tuple(weight.shape))
        return func(*args, **(kwargs or {}))


def gradients(run: Callable[[Tensor, Tensor, Tensor], Tensor], *sizes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    leaves = [torch.randn(s, generator=g, dtype=torch.float64).requires_grad_() for s in sizes]
    y = run(*leaves)
    (y * torch.randn(y.shape, generator=g, dtype=torch.float64)).sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


CASES: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "stride 2": (lambda x, w, b: F.conv2d(x, w, b, 2), (5, 3, 1, 1)),
    "odd size, stride 2 x 3": (lambda x, w, b: F.conv2d(x, w, b, stride=(2, 3)), (5, 3, 1, 1)),
    "stride 1 x 2": (lambda x, w, b: F.conv2d(x, w, b, (1, 2), padding="valid"), (5, 3, 1, 1)),
    "one image": (lambda x, w, b: F.conv2d(x[0], w, b, 2), (5, 3, 1, 1)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2), (3, 5, 1, 1)),
    "transposed, padded": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), output_padding=(1, 2)),
        (3, 5, 1, 1),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_sums_and_gradients(case: str) -> None:
    run, weight = CASES[case]
    sizes = (4, 3, 9, 8), weight, (5,)
    plain = gradients(run, *sizes)
    with Faulty() as before:
        gradients(run, *sizes)
    with safe_gradients(), Faulty() as seen:
        safe = gradients(run, *sizes)
    assert before.found and not seen.found
    assert len(safe) == len(plain) == 4
    for a, b in zip(safe, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_other_convolutions_are_left_as_they_are() -> None:
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    for layer in (
        nn.Conv2d(8, 4, 1, stride=2),
        nn.Conv2d(8, 4, 3, stride=2, padding=1),
        nn.Conv2d(8, 8, 1, stride=2, groups=8),
        nn.Conv2d(8, 4, 1, stride=2, padding=1),
        nn.ConvTranspose2d(8, 8, 2, stride=2),
    ):
        plain = layer(x)
        with safe_gradients():
            safe = layer(x)
        assert torch.equal(plain, safe) and plain.stride() == safe.stride()


def test_a_compiled_layer_is_changed_too() -> None:
    layer = nn.Conv2d(3, 4, 1, stride=2)
    x = torch.randn(2, 3, 8, 8)
    strides: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        strides.extend(n.args[3:] for n in graph.graph.nodes if n.target is torch.conv2d)
        return graph.forward

    with safe_gradients():
        y = torch.compile(layer, backend=backend, fullgraph=True)(x)
    assert strides == [()]  # a stride of 1 is not given
    torch.testing.assert_close(y, layer(x))


def test_a_volume_no_deeper_than_its_kernel_has_the_right_gradient() -> None:
    """Wrong by 0.4 of the largest with AVX-512."""
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, 16, 7, 7, 7, generator=g), torch.randn(16, 16, 7, 7, 7, generator=g)

    def gradient(x: Tensor, w: Tensor) -> Tensor:
        w.requires_grad_()
        F.conv3d(x, w, stride=2, padding=3).square().sum().backward()
        assert w.grad is not None
        return w.grad.double()

    expected = gradient(x.double(), w.double())
    with safe_gradients():
        found = gradient(x, w)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4


SMALL = """
import sys
import torch
from pathlib import Path
from torch import nn
from ptq4snn.models.neuron import LIF
from ptq4snn.training.loop import train
from ptq4snn.training.training_recipe import Stage, TrainingRecipe

torch.set_num_threads(1)

class Samples:
    classes = 2
    def __len__(self): return 16
    def __getitem__(self, i):
        i = torch.as_tensor(i)
        return torch.randn(len(i), 2, 128, 128, generator=torch.Generator().manual_seed(0)), i % 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.fire, self.head = nn.Conv2d(2, 4, 1, stride=2), LIF(), nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.fire(self.stem(x).unsqueeze(0))[0].mean((2, 3)))

recipe = TrainingRecipe("net", (Stage("spiking", 4, 1e-2),), batch_size=8, validation=0, augmentation="none")
train(recipe, lambda steps: Net(), Samples(), Path(sys.argv[1]))
print("trained")
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is an instruction set of x86")
def test_training_on_a_cpu_without_avx512_leaves_the_heap_alone(tmp_path: Path) -> None:
    """97 KiB were written past a buffer of 32 KiB: the process did not live to the end."""
    run = [sys.executable, "-c", SMALL, str(tmp_path)]
    ended = subprocess.run(run, env=os.environ | AVX2, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "trained\n"), ended.stderr


class Watched(Faulty):
    """Counts only what a gradient can come back through."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tracked = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        if not tracked or not torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("recipe", ["adaround+w4m4", "brecq+w4m4", "nearest+mpba+w4m4"])
def test_quantizing_differentiates_none(recipe: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SEWResNet(widths=(4, 8), blocks=(1, 1), strides=(2, 2), stem=4, num_classes=3, T=2)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 4.0)
            nn.init.constant_(m.bias, 0.5)
    x = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with Watched() as seen:
        ptq4snn.quantize(model.eval(), x, recipe, iterations=3)
    assert not seen.found

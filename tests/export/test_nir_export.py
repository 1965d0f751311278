"""Bundles as NIR graphs: the numbers that a reader gets, the bundle that comes back, what NIR cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export.trained import inputs, trained_bundle
from interchange.test_nir import DT, GRAPHS, recurrent, samples
from targets.nets import Rich, bundle, lively

import ptq4snn
from ptq4snn import export
from ptq4snn.errors import BundleError, PTQ4SNNError
from ptq4snn.models.neuron import LIF

nir = pytest.importorskip("nir")


def exported(name: str, folder: Path, recipe: str = "w8m8", **changes: Any) -> tuple[Any, torch.Tensor, Any]:
    graph = GRAPHS[name]()
    x = samples(graph)
    model = ptq4snn.from_nir(graph, dt=DT, reset="subtract")
    q = ptq4snn.quantize(model, x, recipe, **changes)
    assert q.program is not None, q.not_lowered
    q.save(folder / "q.ptq")
    export.nir(folder / "q.ptq", folder / "q.nir", dt=DT)
    return q, x, nir.read(folder / "q.nir", type_check=False)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_bundle_comes_back(name: str, tmp_path: Path) -> None:
    exported(name, tmp_path)
    export.bundle_of(tmp_path / "q.nir", tmp_path / "again.ptq")
    assert (tmp_path / "again.ptq").read_bytes() == (tmp_path / "q.ptq").read_bytes()


@pytest.mark.parametrize("name", GRAPHS)
def test_a_reader_gets_the_dequantized_network(name: str, tmp_path: Path) -> None:
    """Nodes and edges of the original, weights that are integers times scales, and nearly the same spikes."""
    _, x, graph = exported(name, tmp_path)
    original = GRAPHS[name]()

    def kinds(g: Any) -> list[str]:
        same = {"Linear": "Affine", "Scale": ""}
        return sorted(filter(None, (same.get(k, k) for k in (type(n).__name__ for n in g.nodes.values()))))

    assert kinds(graph) == kinds(original)
    for node in graph.nodes.values():
        if hasattr(node, "weight") and "q.input_scales" not in node.metadata:
            integers, scales = node.metadata["q.integers"], node.metadata["q.scales"]
            norm = node.metadata.get("q.norm", np.ones(len(integers)))
            real = integers * (scales * norm).reshape(-1, *[1] * (integers.ndim - 1))
            np.testing.assert_allclose(node.weight, real, rtol=1e-6)
    read = ptq4snn.from_nir(tmp_path / "q.nir", dt=DT, reset="subtract", readout="none")
    wanted = ptq4snn.from_nir(original, dt=DT, reset="subtract", readout="none")(x)
    assert wanted.any()
    assert (read(x) != wanted).float().mean() < 0.06


def test_without_a_leak_and_with_wide_states_nothing_differs(tmp_path: Path) -> None:
    """IF neurons of 32-bit states compute in whole numbers what the real network computes."""
    rng = np.random.default_rng(0)
    graph = nir.NIRGraph.from_list(
        nir.Linear(rng.normal(0, 0.6, (16, 9)).astype(np.float32)),
        nir.IF(np.ones(16), np.ones(16)),
        nir.Linear(rng.normal(0, 0.6, (5, 16)).astype(np.float32)),
        nir.IF(np.ones(5), np.ones(5)),
    )
    x = samples(graph)
    q = ptq4snn.quantize(
        ptq4snn.from_nir(graph, reset="subtract"), x, "w4m4", coupling="none", first_membrane=16
    )
    q.save(tmp_path / "q.ptq")
    export.nir(tmp_path / "q.ptq", tmp_path / "q.nir")
    read = ptq4snn.from_nir(tmp_path / "q.nir", reset="subtract").double()
    assert torch.equal(read(x.double()).float(), q(x))


def test_the_embedded_default(tmp_path: Path) -> None:
    """Shortcuts, strides, a mean over the image, an input of 8-bit levels: real states decide alike."""
    path, x = trained_bundle("default"), inputs("default", 48, 1)
    export.nir(path, tmp_path / "q.nir")
    read = ptq4snn.from_nir(tmp_path / "q.nir", dt=1e-4, reset="zero")
    with torch.no_grad():
        found = read(torch.stack([x] * 4, 1)).argmax(1).numpy()
    wanted = np.asarray(ptq4snn.runtime.load(path)(x.numpy())).argmax(1)
    assert (found == wanted).mean() > 0.8


@pytest.mark.parametrize("size", [4, 6])
def test_pools_over_tiles_are_sums_over_windows(size: int, tmp_path: Path) -> None:
    """Adaptive pools, to one number and to several."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.n1 = torch.nn.Conv2d(1, 4, 3, padding=1), LIF(v_threshold=0.3)
            self.pool, self.last = torch.nn.AdaptiveAvgPool2d((2, 2)), torch.nn.AdaptiveAvgPool2d((1, 1))
            self.deep, self.n2 = torch.nn.Conv2d(4, 4, 1), LIF(v_threshold=0.1)
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.n1(torch.stack([self.conv(x)] * 3))
            y = self.n2(torch.stack([self.deep(self.pool(z)) for z in y]))
            return torch.stack([self.head(self.last(z).flatten(1)) for z in y]).mean(0)

    net = lively(Net())
    x = torch.rand(24, 1, size, size, generator=torch.Generator().manual_seed(0)) * 3
    ptq4snn.quantize(net, x, "nearest+uniform+w8m8", holdout=8).save(tmp_path / "q.ptq")
    export.nir(tmp_path / "q.ptq", tmp_path / "q.nir", dt=DT)
    graph = nir.read(tmp_path / "q.nir", type_check=False)
    kernels = [tuple(n.kernel_size) for n in graph.nodes.values() if isinstance(n, nir.SumPool2d)]
    assert kernels == [(size // 2, size // 2), (2, 2)]
    read = ptq4snn.from_nir(tmp_path / "q.nir", dt=DT, reset="zero")
    with torch.no_grad():
        found, wanted = read(torch.stack([x] * 3, 1)) / 3, net(x)
    assert wanted.std(0).min() > 0
    assert torch.corrcoef(torch.stack([found.flatten(), wanted.flatten()]))[0, 1] > 0.95


def test_what_nir_cannot_say_is_refused_with_its_place(tmp_path: Path) -> None:
    bundle(tmp_path / "q.ptq", Rich(), "fast+w4m4", 2, 6, 6)
    with pytest.raises(PTQ4SNNError, match=r"'pool' .* cannot be written as NIR"):
        export.nir(tmp_path / "q.ptq", tmp_path / "q.nir")
    assert not (tmp_path / "q.nir").exists()


def test_a_file_without_a_bundle(tmp_path: Path) -> None:
    nir.write(tmp_path / "plain.nir", recurrent(lambda n: nir.IF(np.ones(n), np.ones(n))))
    with pytest.raises(BundleError, match="holds no bundle"):
        export.bundle_of(tmp_path / "plain.nir", tmp_path / "out.ptq")
    assert not (tmp_path / "out.ptq").exists()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ptq4snn.cli.main import main

    exported("recurrent cuba", tmp_path)
    bundle = str(tmp_path / "q.ptq")
    for way, file in (("nir", "a.nir"), ("onnx", "a.onnx")):
        assert main(["export", bundle, "--to", way, "--out", str(tmp_path / file)]) == 0
    assert main(["export", str(tmp_path / "a.nir"), "--to", "ptq", "--out", str(tmp_path / "b.ptq")]) == 0
    assert (tmp_path / "b.ptq").read_bytes() == (tmp_path / "q.ptq").read_bytes()
    assert main(["export", bundle, "--to", "nir", "--form", "scan", "--out", str(tmp_path / "c.nir")]) == 2
    assert "--form is for --to onnx" in capsys.readouterr().err and not (tmp_path / "c.nir").exists()

"""NIR graphs: the model against a plain simulation of the graph, and through to the runtime."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import ptq4snn
from ptq4snn import runtime
from ptq4snn.errors import CheckpointError, PTQ4SNNError
from ptq4snn.network.program import Delay
from ptq4snn.runtime.native import available

nir = pytest.importorskip("nir")

Array = NDArray[Any]
DT = 1e-3
STEPS = 7
RNG = np.random.default_rng


def full(shape: tuple[int, ...], value: float) -> Array:
    return np.full(shape, value)


def lif(n: tuple[int, ...]) -> Any:
    return nir.LIF(full(n, 5e-3), full(n, 4.0), full(n, 0.0), full(n, 1.0))


def cuba(n: tuple[int, ...], rng: Any = None) -> Any:
    tau = full(n, 4e-3) if rng is None else rng.uniform(2e-3, 9e-3, n)
    return nir.CubaLIF(tau, full(n, 6e-3), full(n, 5.0), full(n, 0.0), full(n, 1.0), w_in=full(n, 3.0))


def weights(rng: Any, *shape: int) -> Array:
    return rng.normal(0.0, 0.6, shape).astype(np.float32)


def feed_forward(neuron: Callable[..., Any]) -> Any:
    rng = RNG(0)
    return nir.NIRGraph.from_list(
        nir.Affine(weights(rng, 16, 9), weights(rng, 16) / 3),
        neuron((16,)),
        nir.Linear(weights(rng, 5, 16)),
        neuron((5,)),
    )


def recurrent(neuron: Callable[..., Any], feedback: bool = False) -> Any:
    """One layer that hears itself, or the next one."""
    rng = RNG(1)
    nodes = {
        "input": nir.Input(np.array([9])),
        "in": nir.Linear(weights(rng, 16, 9)),
        "one": neuron((16,)),
        "between": nir.Linear(weights(rng, 5, 16)),
        "two": neuron((5,)),
        "back": nir.Linear(weights(rng, 16, 5 if feedback else 16)),
        "output": nir.Output(np.array([5])),
    }
    source = "two" if feedback else "one"
    edges = [
        ("input", "in"), ("in", "one"), ("one", "between"), ("between", "two"), ("two", "output"),
        (source, "back"), ("back", "one"),
    ]  # fmt: skip
    return nir.NIRGraph(nodes, edges, type_check=False)


def convolutional() -> Any:
    rng = RNG(2)
    conv = nir.Conv2d((6, 6), weights(rng, 4, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1, weights(rng, 4) / 4)
    return nir.NIRGraph.from_list(
        conv, nir.IF(full((4, 6, 6), 1.0), full((4, 6, 6), 1.0)),
        nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        nir.Flatten({"input": (4, 3, 3)}, 0),
        nir.Affine(weights(rng, 5, 36), weights(rng, 5)), nir.Scale(rng.uniform(0.5, 1.5, 5)), lif((5,)),
        type_check=False,
    )  # fmt: skip


class Simulation:
    """Forward Euler in float64, node by node and step by step, straight from the equations."""

    def __init__(self, graph: Any, reset: str) -> None:
        self.nodes, self.edges, self.reset = graph.nodes, graph.edges, reset
        self.state: dict[str, Any] = {}

    def __call__(self, x: Array) -> Array:
        """[T, ...] of one sample."""
        last: dict[str, Array] = {}
        out = []
        for frame in x.astype(np.float64):
            now: dict[str, Array] = {}
            while len(now) < len(self.nodes):
                for name in self.nodes:
                    if name not in now and self._ready(name, now):
                        now[name] = self._node(name, self._given(name, now, last, frame))
            last = now
            out.append(now[next(n for n, node in self.nodes.items() if isinstance(node, nir.Output))])
        return np.stack(out)

    def _late(self, a: str, b: str) -> bool:
        return b == "back"

    def _ready(self, name: str, now: dict[str, Array]) -> bool:
        return all(a in now or self._late(a, b) for a, b in self.edges if b == name)

    def _given(self, name: str, now: dict[str, Array], last: dict[str, Array], frame: Array) -> Any:
        parts = [last.get(a, 0.0) if self._late(a, b) else now[a] for a, b in self.edges if b == name]
        return sum(parts) if parts else frame

    def _node(self, name: str, x: Any) -> Array:
        node, kind = self.nodes[name], type(self.nodes[name]).__name__
        if kind in ("Input", "Output"):
            return np.asarray(x)
        if kind in ("Affine", "Linear"):
            x = np.broadcast_to(x, node.weight.shape[1:])
            return node.weight.astype(np.float64) @ x + (node.bias if kind == "Affine" else 0.0)
        if kind == "Scale":
            return np.asarray(x * node.scale)
        if kind == "Flatten":
            return np.asarray(x).reshape(-1)
        if kind == "SumPool2d":
            return np.asarray(F.avg_pool2d(torch.tensor(x)[None], 2, 2)[0] * 4)
        if kind == "Conv2d":
            weight, bias = torch.tensor(node.weight).double(), torch.tensor(node.bias).double()
            return np.asarray(F.conv2d(torch.tensor(x)[None], weight, bias, padding=1)[0])
        return self._neuron(name, node, kind, x)

    def _neuron(self, name: str, node: Any, kind: str, x: Any) -> Array:
        v, i = self.state.get(name, (0.0, 0.0))
        if kind == "IF":
            v = v + node.r * x
        elif kind in ("LIF", "LI"):
            v = v + DT / node.tau * (-v + node.r * x)
        else:
            i = i + DT / node.tau_syn * (-i + node.w_in * x)
            v = v + DT / node.tau_mem * (-v + node.r * i)
        if kind == "LI":
            self.state[name] = v, i
            return np.asarray(v)
        z = (v > node.v_threshold).astype(np.float64)
        v = v * (1 - z) if self.reset == "zero" else v - z * node.v_threshold
        self.state[name] = v, i
        return z


GRAPHS: dict[str, Callable[[], Any]] = {
    "lif": lambda: feed_forward(lif),
    "cuba": lambda: feed_forward(cuba),
    "cuba of many time constants": lambda: feed_forward(lambda n: cuba(n, RNG(5))),
    "recurrent lif": lambda: recurrent(lif),
    "recurrent cuba": lambda: recurrent(cuba),
    "feedback": lambda: recurrent(cuba, feedback=True),
    "convolutional": convolutional,
}


def samples(graph: Any, count: int = 24) -> torch.Tensor:
    shape = (2, 6, 6) if any(isinstance(n, nir.Conv2d) for n in graph.nodes.values()) else (9,)
    return torch.from_numpy((RNG(3).random((count, STEPS, *shape)) < 0.4).astype(np.float32))


@pytest.mark.parametrize("reset", ["subtract", "zero"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_model_is_the_graph(name: str, reset: str, tmp_path: Path) -> None:
    """Every output spike of every step in float64; from the graph and from a file."""
    graph = GRAPHS[name]()
    x = samples(graph, 6)
    expected = np.stack([Simulation(graph, reset)(s) for s in x.numpy()])
    model = ptq4snn.from_nir(graph, dt=DT, reset=reset, readout="none").double()
    assert expected.any()
    np.testing.assert_array_equal(model(x.double()).numpy(), expected)
    nir.write(tmp_path / "net.nir", graph)
    again = ptq4snn.from_nir(tmp_path / "net.nir", dt=DT, reset=reset).double()
    np.testing.assert_array_equal(again(x.double()).numpy(), expected.sum(1))


class Rockpool(Simulation):
    """What its LIFTorch, LIFNeuronTorch and ExpSynTorch compute with a file's time constants."""

    def _neuron(self, name: str, node: Any, kind: str, x: Any) -> Array:
        v, i = self.state.get(name, (0.0, 0.0))
        if kind == "LI":
            v = (v + x) * np.exp(-DT / node.tau)
            self.state[name] = v, i
            return np.asarray(v)
        i = (i + x) * np.exp(-DT / node.tau_syn) if kind == "CubaLIF" else x
        v = v * np.exp(-DT / (node.tau_mem if kind == "CubaLIF" else node.tau)) + i
        z = (v >= node.v_threshold).astype(np.float64)
        self.state[name] = v - z * node.v_threshold, i
        return z


def plain_cuba(n: tuple[int, ...]) -> Any:
    """As Rockpool writes it: r = tau exp(-dt / tau) / dt, which is not read, and w_in left at 1."""
    tau = RNG(5).uniform(2e-3, 9e-3, n)
    return nir.CubaLIF(full(n, 4e-3), tau, tau * np.exp(-DT / tau) / DT, full(n, 0.0), full(n, 1.0))


@pytest.mark.parametrize("make", [feed_forward, recurrent])
@pytest.mark.parametrize("neuron", [lif, plain_cuba])
def test_the_model_is_what_rockpool_computes(make: Callable[..., Any], neuron: Callable[..., Any]) -> None:
    graph = make(neuron)
    x = samples(graph, 6)
    expected = np.stack([Rockpool(graph, "")(s) for s in x.numpy()])
    model = ptq4snn.from_nir(graph, dt=DT, readout="none", rule="rockpool").double()
    assert expected.any()
    np.testing.assert_array_equal(model(x.double()).numpy(), expected)


@pytest.mark.parametrize("name", GRAPHS)
def test_quantized_and_run(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    x = samples(graph)
    model = ptq4snn.from_nir(graph, dt=DT, reset="subtract")
    q = ptq4snn.quantize(model, x, "w4m4")
    assert q.program is not None, q.not_lowered
    assert any(isinstance(op, Delay) for op in q.program.operations) == ("back" in graph.nodes)
    expected = q(x).numpy()
    np.testing.assert_array_equal(q(x).numpy(), expected)  # every call begins at rest
    q.save(tmp_path / "q.ptq")
    for kernels in ("numpy", *available()):
        np.testing.assert_array_equal(runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy()), expected)
    np.testing.assert_array_equal(ptq4snn.load(tmp_path / "q.ptq", model)(x).numpy(), expected)


def test_a_readout_keeps_16_bits_and_is_returned() -> None:
    rng = RNG(0)
    graph = nir.NIRGraph.from_list(
        nir.Linear(weights(rng, 16, 9)), cuba((16,)), nir.Linear(weights(rng, 5, 16)),
        nir.LI(full((5,), 8e-3), full((5,), 2.0), full((5,), 0.0)),
    )  # fmt: skip
    x = samples(graph)
    model = ptq4snn.from_nir(graph, dt=DT, reset="zero", readout="last")
    expected = np.stack([Simulation(graph, "zero")(s)[-1] for s in x.numpy()])
    np.testing.assert_allclose(model.double()(x.double()).numpy(), expected, rtol=1e-9)
    q = ptq4snn.quantize(model.float(), x, "w8m8")
    assert q.program is not None, q.not_lowered
    readout = next(n for n in q.plan.neurons.values() if n.readout)
    assert set(readout.bits) == {16}
    assert np.abs(q(x).numpy() - expected).mean() < 0.1 * np.abs(expected).mean()


def test_a_delay_of_whole_steps(tmp_path: Path) -> None:
    """Spikes that arrive two steps later are two delays of the program."""
    rng = RNG(4)
    n = nir.IF(full((16,), 1.0), full((16,), 1.0))
    last = nir.IF(full((5,), 1.0), full((5,), 1.0))
    late = nir.Delay(full((16,), 2 * DT))
    layers = [nir.Linear(weights(rng, 16, 9)), n, nir.Linear(weights(rng, 5, 16)), last]
    plain = nir.NIRGraph.from_list(*layers)
    delayed = nir.NIRGraph.from_list(*layers[:2], late, *layers[2:])
    x = samples(plain)
    model = ptq4snn.from_nir(delayed, dt=DT, reset="subtract", readout="none")
    want = ptq4snn.from_nir(plain, reset="subtract", readout="none")(x)
    found = model(x)
    assert want.any()
    assert torch.equal(found[:, 2:], want[:, :-2]) and not found[:, :2].any()
    q = ptq4snn.quantize(ptq4snn.from_nir(delayed, dt=DT, reset="subtract"), x, "w4m4")
    assert q.program is not None, q.not_lowered
    assert sum(isinstance(op, Delay) for op in q.program.operations) == 2
    q.save(tmp_path / "q.ptq")
    for kernels in ("numpy", *available()):
        y = runtime.load(tmp_path / "q.ptq", kernels=kernels)(x.numpy())
        np.testing.assert_array_equal(y, q(x).numpy())


def test_the_command_line_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ptq4snn.cli.main import main

    graph = recurrent(cuba)
    nir.write(tmp_path / "net.nir", graph)
    x = samples(graph, 32)
    np.savez(tmp_path / "x.npz", x=x.numpy(), y=np.arange(32) % 5)
    own = ["--model", str(tmp_path / "net.nir"), "--data", str(tmp_path / "x.npz"), "--dt", str(DT)]
    assert main(["inspect", *own, "--reset", "zero"]) == 0
    assert "one.synapse" in capsys.readouterr().out
    out = ["--out", str(tmp_path / "q.ptq")]
    assert main(["quantize", *own, "--recipe", "w4m4", *out]) == 2
    assert "--reset on the command line" in capsys.readouterr().err and not (tmp_path / "q.ptq").exists()
    assert main(["quantize", *own, "--reset", "zero", "--recipe", "w4m4", *out]) == 0
    assert main(["evaluate", str(tmp_path / "q.ptq"), "--data", str(tmp_path / "x.npz")]) == 0


def test_what_a_file_leaves_open_is_asked_for() -> None:
    graph = feed_forward(lif)
    with pytest.raises(PTQ4SNNError, match=r"give dt"):
        ptq4snn.from_nir(graph, reset="zero")
    with pytest.raises(PTQ4SNNError, match=r"\"subtract\" or \"zero\""):
        ptq4snn.from_nir(graph, dt=DT)
    with pytest.raises(PTQ4SNNError, match="shorter than the step"):
        ptq4snn.from_nir(graph, dt=1.0, reset="zero")


def test_refusals_name_the_node(tmp_path: Path) -> None:
    odd = nir.NIRGraph.from_list(nir.Linear(weights(RNG(0), 4, 9)), nir.Threshold(full((4,), 1.0)))
    with pytest.raises(PTQ4SNNError, match=r"threshold.*Threshold, which has no integer form"):
        ptq4snn.from_nir(odd, dt=DT, reset="zero")
    (tmp_path / "broken.nir").write_bytes(b"not HDF5 at all")
    with pytest.raises(CheckpointError, match="cannot be read as a NIR graph"):
        ptq4snn.from_nir(tmp_path / "broken.nir")
    with pytest.raises(CheckpointError, match="there is no file"):
        ptq4snn.from_nir(tmp_path / "none.nir")


def test_a_file_that_asks_for_much_is_refused_before_it_gets_it(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "large.nir"
    late = nir.NIRGraph.from_list(nir.Linear(weights(RNG(0), 4, 9)), nir.Delay(full((4,), 1e9)))
    with pytest.raises(PTQ4SNNError, match=r"the delay of 'delay' is \d+ steps"):
        ptq4snn.from_nir(late, dt=DT)
    nir.write(path, nir.NIRGraph.from_list(nir.Linear(weights(RNG(0), 4, 9))))
    with h5py.File(path, "r+") as file:
        del file["node/nodes/linear/weight"]
        file.create_dataset("node/nodes/linear/weight", (2**20, 2**20), "<f4")  # none of it is written
    assert path.stat().st_size < 2**17
    with pytest.raises(CheckpointError, match=r"bytes of numbers: a graph may have"):
        ptq4snn.from_nir(path)


@pytest.mark.parametrize("value", [b"Affine", np.zeros((3, 3, 3)), np.array([[1 + 2j]]), b""])
def test_parameters_that_are_no_numbers_or_do_not_fit_are_refused(value: Any, tmp_path: Path) -> None:
    import h5py

    path = tmp_path / "odd.nir"
    nir.write(path, nir.NIRGraph.from_list(nir.Linear(weights(RNG(0), 4, 9)), nir.Scale(full((4,), 2.0))))
    with h5py.File(path, "r+") as file:
        del file["node/nodes/scale/scale"]
        file["node/nodes/scale/scale"] = value
    with pytest.raises(PTQ4SNNError):
        ptq4snn.from_nir(path)


def test_a_file_that_ends_the_library_does_not_end_the_process(tmp_path: Path) -> None:
    damaged = Path(__file__).parents[1] / "fuzz" / "corpus" / "nir-deadly.xz"
    (tmp_path / "d.nir").write_bytes(lzma.decompress(damaged.read_bytes()))
    with pytest.raises(CheckpointError):
        ptq4snn.from_nir(tmp_path / "d.nir", dt=DT, reset="zero")

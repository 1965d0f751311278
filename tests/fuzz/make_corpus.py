"""Small valid files that only a quantization makes, and those that once broke their reader and can be made:

python tests/fuzz/make_corpus.py [--broken]    # these alone
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"


def threshold_of_0() -> bytes:
    """A bundle with a neuron that counts how often its threshold fits, and a threshold of 0."""
    from runtime.bundles import planned_models, write_model

    counting = [m for m in planned_models(40, 4) if any(n.most > 1 for n in m.neurons.values())]
    model = min(counting, key=lambda m: sum(p.weight.size for p in m.projections.values()))
    zero = {k: replace(n, theta=n.theta * (n.most == 1)) for k, n in model.neurons.items()}
    with tempfile.TemporaryDirectory() as folder:
        write_model(replace(model, neurons=zero), Path(folder) / "m.ptq")
        return (Path(folder) / "m.ptq").read_bytes()


def nir_graph(delay: float, unwritten: bool = False) -> bytes:
    """A graph with a delay in seconds; or with weights of 8 TiB, of which nothing is in the file."""
    import h5py
    import nir

    graph = nir.NIRGraph.from_list(nir.Linear(np.eye(4)), nir.Delay(np.full(4, delay)))
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "g.nir", Path(folder) / "small.nir"
        nir.write(path, graph)
        with h5py.File(path) as file, h5py.File(small, "w", libver="latest") as out:
            _copy(file, out)
            if unwritten:
                del out["node/nodes/linear/weight"]
                out.create_dataset("node/nodes/linear/weight", (2**20, 2**20), "<f8")
        return small.read_bytes()


def _copy(old: Any, new: Any) -> None:
    """Texts of fixed length: others take 4 KiB each."""
    for name, item in old.items():
        if hasattr(item, "items"):
            _copy(item, new.create_group(name))
        else:
            new[name] = np.asarray(item[()]).astype("S") if item.dtype.kind == "O" else item[()]


def nested_labels() -> bytes:
    """A list that holds a list 200 times, and so on: 1.28 * 10^16 numbers."""
    labels: list[Any] = [1] * 200
    for _ in range(6):
        labels = [labels] * 200
    return pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": labels}, 2)


BROKEN: dict[str, Callable[[], bytes]] = {
    "bundle-threshold-0": threshold_of_0,
    "cifar-labels": nested_labels,
    "cifar-memo": lambda: b"\x80\x02}r\x00\x00\x00\x30.",  # place 805,306,368, for which Python takes 6 GiB
    "nir-delay": lambda: nir_graph(1e12),  # 10^15 steps of a millisecond
    "nir-unwritten": lambda: nir_graph(1e-3, unwritten=True),
}


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    for name, make in BROKEN.items():
        (CORPUS / "broken" / name).write_bytes(make())
    if sys.argv[1:] != ["--broken"]:
        quantized()


def quantized() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from soak_parts.network import frames, make

    from ptq4snn.runtime import load

    CORPUS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "net.ptq"
        make(bundle)
        rt = load(bundle, "numpy")
        rt.step(frames(0)[0])
        assert rt.state is not None
        rt.state.save(CORPUS / "session.state")
        (CORPUS / "bundle.ptq").write_bytes(bundle.read_bytes())
        (CORPUS / "report.json").write_bytes(Path(f"{bundle}.report.json").read_bytes())


if __name__ == "__main__":
    main()

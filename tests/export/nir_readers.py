"""What other frameworks make of exported NIR files: the spikes of the float reference, others, or a refusal.

    python tests/export/nir_readers.py READER FOLDER

prints one JSON object, network to outcome, for the files that `write_files` put into the folder. Each
framework has a folder of its own and so a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
DT, STEPS = 1e-4, 7
READERS = {  # and the variable that names its folder, where it is not installed beside the package
    "snnTorch 1.0.0": None,
    "Norse 1.1.0": "PTQ4SNN_NORSE",
    "sinabs 3.1.3": "PTQ4SNN_SINABS",
    "SpikingJelly 2.0.0": "PTQ4SNN_SPIKINGJELLY_200",
}
NIRTORCH = "PTQ4SNN_NIRTORCH"  # which all of them import
SAME, OTHER = "same spikes", "other spikes"


def _neurons(nir: Any) -> dict[str, Callable[[tuple[int, ...]], Any]]:
    def full(n: tuple[int, ...], value: float) -> Any:
        return np.full(n, value)

    return {
        "IF": lambda n: nir.IF(full(n, 1.0), full(n, 1.0)),
        "LIF": lambda n: nir.LIF(full(n, 5e-4), full(n, 4.0), full(n, 0.0), full(n, 1.0)),
        "CubaLIF": lambda n: nir.CubaLIF(
            full(n, 4e-4), full(n, 6e-4), full(n, 5.0), full(n, 0.0), full(n, 1.0), w_in=full(n, 3.0)
        ),
    }


def _image(nir: Any, neuron: Callable[[tuple[int, ...]], Any], pool: bool) -> Any:
    from interchange.test_nir import RNG, weights

    rng, side = RNG(2), 3 if pool else 6
    conv = nir.Conv2d((6, 6), weights(rng, 4, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1, weights(rng, 4) / 4)
    two, none = np.array([2, 2]), np.array([0, 0])
    pools = [nir.SumPool2d(two, two, none)] if pool else []
    flat, n = nir.Flatten({"input": (4, side, side)}, 0), 4 * side * side
    head = nir.Affine(weights(rng, 5, n) * 6 / n**0.5, weights(rng, 5))
    return nir.NIRGraph.from_list(conv, neuron((4, 6, 6)), *pools, flat, head, neuron((5,)), type_check=False)


def networks() -> dict[str, tuple[Callable[[], Any], str, float]]:
    """Name to graph, reset and length of a step."""
    import nir
    from interchange.test_nir import feed_forward, recurrent

    kinds = _neurons(nir)
    flat = {name: functools.partial(feed_forward, neuron) for name, neuron in kinds.items()}
    found: dict[str, tuple[Callable[[], Any], str, float]] = {}
    for name, make in flat.items():
        found[f"{name}, fully connected"] = make, "zero", DT
    found["IF, fully connected, `--dt 1`"] = flat["IF"], "zero", 1.0
    found["LIF, fully connected, reset by subtraction"] = flat["LIF"], "subtract", DT
    found["LIF, convolutional"] = functools.partial(_image, nir, kinds["LIF"], False), "zero", DT
    found["IF, convolutional, pooled"] = functools.partial(_image, nir, kinds["IF"], True), "zero", DT
    for name in ("LIF", "CubaLIF"):
        found[f"{name}, recurrent"] = functools.partial(recurrent, kinds[name]), "zero", DT
    return found


def write_files(folder: Path) -> None:
    """Every network quantized and exported, with inputs and with the spikes of the dequantized network."""
    from interchange.test_nir import samples

    import ptq4snn
    from ptq4snn import export

    for name, (make, reset, dt) in networks().items():
        graph = make()
        x = samples(graph)
        bundle, file = folder / f"{name}.ptq", folder / f"{name}.nir"
        ptq4snn.quantize(ptq4snn.from_nir(graph, dt=dt, reset=reset), x, "w4m4", holdout=8).save(bundle)
        export.nir(bundle, file, dt=dt)
        wanted = ptq4snn.from_nir(file, dt=dt, reset=reset, readout="none").double()(x[:6].double())
        assert wanted.any(), name
        torch.save({"x": x[:6], "wanted": wanted, "dt": dt}, folder / f"{name}.pt")


def importer(reader: str) -> Callable[[Any, float], Any]:
    """The framework's own way in, from a graph and the length of a step where it asks for one."""
    if reader.startswith("snnTorch"):
        from snntorch.import_nir import import_from_nir

        return lambda graph, dt: import_from_nir(graph)
    if reader.startswith("Norse"):
        from norse.torch import from_nir

        return lambda graph, dt: from_nir(graph, dt=dt)
    if reader.startswith("sinabs"):
        sys.modules["pylab"] = types.ModuleType("pylab")  # it draws with it, and nothing here is drawn
        from sinabs.nir import from_nir as from_sinabs

        return lambda graph, dt: from_sinabs(graph, batch_size=1)
    from spikingjelly.activation_based.nir_exchange import import_from_nir as from_spikingjelly

    return lambda graph, dt: from_spikingjelly(graph, dt=dt)


def spikes(reader: str, net: Any, x: Tensor) -> Tensor:
    """[T, ...] of one sample, as each framework is called."""
    if reader.startswith("sinabs"):
        y = net(x)
        return y[0] if isinstance(y, tuple) else y
    batched, state, out = reader.startswith("SpikingJelly"), None, []
    for frame in x:
        y, state = net(frame[None] if batched else frame, state)
        out.append(y[0] if batched else y)
    return torch.stack(out)


def outcome(reader: str, load: Callable[[Any, float], Any], file: Path) -> str:
    """Same spikes in all samples, others, or the sentence of the exception."""
    import nir

    kept = torch.load(file.with_suffix(".pt"))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            nets = [load(nir.read(file, type_check=False), kept["dt"]) for _ in kept["x"]]
            found = [spikes(reader, net, x) for net, x in zip(nets, kept["x"], strict=True)]
    except Exception as why:  # whatever a framework raises is what is asked for
        said = " ".join(str(why).split()).replace("|", "/")
        return f"{type(why).__name__}: {said}"[:110]
    y = torch.stack(found).double()
    if y.shape != kept["wanted"].shape:
        return f"spikes of another layer ({y.shape[-1]} of them instead of {kept['wanted'].shape[-1]})"
    return SAME if torch.equal(y, kept["wanted"]) else OTHER


def asked(reader: str, folder: Path) -> dict[str, str] | None:
    """All outcomes of a reader, in a process of its own; None where it or nirtorch is not there."""
    variable = READERS[reader]
    needed = [os.environ.get(v, "") for v in (NIRTORCH, variable) if v is not None]
    if not all(place and Path(place).is_dir() for place in needed):
        return None
    path = os.pathsep.join([*needed, str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, __file__, reader, str(folder)], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    found: dict[str, str] = json.loads(run.stdout)
    return found


def main(reader: str, folder: Path) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    load = importer(reader)
    with torch.no_grad():
        print(json.dumps({file.stem: outcome(reader, load, file) for file in sorted(folder.glob("*.nir"))}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

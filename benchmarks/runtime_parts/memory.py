"""Peak memory of a process that runs one contender, measured in a process of its own.

    python memory.py runtime BUNDLE X.npy
    python memory.py eager|compiled|spikingjelly CASE FOLDER X.npy

Float: its parameters, and the growth of the resident peak over a call once a call has warmed it up.
Runtime: the growth of the resident peak from before the bundle is loaded, so everything it needs.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path

import numpy as np


def status(key: str) -> int:
    """Bytes of a line of /proc/self/status: VmRSS, VmHWM."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
    return int(line.split()[1]) * 1024


def settle() -> int:
    """Give back what is free, forget the peak; resident bytes now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def of_runtime(bundle: str, x: np.ndarray) -> dict[str, int]:
    from ptq4snn.runtime import load

    load(bundle)(x[:1])  # libraries are loaded, and their own memory taken
    before = settle()
    rt = load(bundle)
    loaded = settle()
    rt(x)
    s = rt.statistics()
    buffers = s.weights_bytes + s.arena_bytes
    return {"process": status("VmHWM") - before, "run": status("VmHWM") - loaded, "buffers": buffers}


def of_float(kind: str, case: str, folder: str, x: np.ndarray) -> dict[str, int]:
    import torch

    from runtime_parts.cases import ready, synthetic, trained
    from runtime_parts.floats import compiled, inference, lean, spikingjelly

    torch.set_num_threads(1)
    r = ready(next(c for c in [*synthetic(), *trained()] if c.name == case), Path(folder), {})
    batch = torch.from_numpy(x)
    if kind == "compiled":
        run, _ = compiled(lean(r.model, batch), batch)
    else:
        found = spikingjelly(r.model) if kind == "spikingjelly" else inference(r.model)
        assert found is not None
        run = found
    run(batch)
    parameters = 4 * sum(p.numel() for p in r.model.parameters())
    before = settle()
    run(batch)
    return {"process": parameters + status("VmHWM") - before, "run": status("VmHWM") - before}


def measured(*arguments: str) -> dict[str, int]:
    """In a fresh process."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    samples = np.load(sys.argv[-1])
    if sys.argv[1] == "runtime":
        result = of_runtime(sys.argv[2], samples)
    else:
        result = of_float(sys.argv[1], sys.argv[2], sys.argv[3], samples)
    print(json.dumps(result))

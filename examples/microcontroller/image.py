"""One embedded CIFAR-10 image as levels, for image.h; and what the runtime says of it.

python image.py model.ptq 0 > image.h
"""

import sys

import numpy as np

import ptq4snn.runtime
from ptq4snn.data.cifar import normalize
from ptq4snn.data.sample import default_sample
from ptq4snn.network.program import Quantize

rt = ptq4snn.runtime.load(sys.argv[1])
x = normalize(default_sample()[1][int(sys.argv[2])])[None].numpy()
op = next(op for op in rt.model.program.operations if isinstance(op, Quantize))
grid = rt.model.projections[op.name].input
assert grid is not None
flat = x.reshape(-1)[op.index.array()].astype(np.float64)
levels = np.clip(
    np.rint(flat * np.resize(1 / grid.scales, flat.size) + np.resize(grid.zeros / 2**16, flat.size)), 0, 255
)
print(f"/* the runtime says: class {int(np.argmax(rt(x)))} */\n#include <stdint.h>")
print(f"static const uint8_t levels[{levels.size}] = {{{', '.join(str(int(v)) for v in levels)}}};")

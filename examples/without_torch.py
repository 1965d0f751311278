"""Run a bundle where there is no torch: only NumPy, safetensors and this package are used.

    python examples/without_torch.py MODEL.ptq IMAGES.npy

Makes nothing: take the bundle of another example, or `ptq4snn quantize --out model.ptq`.
"""

import sys

import numpy as np

import ptq4snn.runtime


def main(bundle: str, images: str) -> None:
    rt = ptq4snn.runtime.load(bundle)  # checked before anything runs; the file may be a stranger's
    x = np.load(images, allow_pickle=False)
    logits = rt(x)
    assert isinstance(logits, np.ndarray)  # a model of several outputs returns a tuple
    print(f"kernels: {rt.kernels}, torch loaded: {'torch' in sys.modules}")
    print("classes:", " ".join(map(str, logits.argmax(-1))))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/without_torch.py MODEL.ptq IMAGES.npy")
    main(*sys.argv[1:])

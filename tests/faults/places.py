"""A folder with a small model, samples and recipes, for commands that are disturbed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cli.nets import NET

__all__ = ["new_place"]

RECIPE = """
model = "net:trained"
batch_size = 8
validation = 8
augmentation = "none"

[[stages]]
kind = "rate"
epochs = 6
learning_rate = 1e-2

[[stages]]
epochs = 6
learning_rate = 1e-2
"""
TRAINED = """
def trained(T=4):
    return Net()
"""


def new_place(folder: Path) -> Path:
    """net.py, small.toml, x.npy without labels and xy.npz with them."""
    folder.mkdir()
    (folder / "net.py").write_text(NET + TRAINED)
    (folder / "small.toml").write_text(RECIPE)
    x = np.random.default_rng(0).normal(size=(96, 6)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "xy.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return folder

"""CIFAR-10 in its official binary layout: records of 1 label byte and 3,072 pixel bytes (R, G, B planes)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

__all__ = ["MEAN", "STD", "normalize", "read_cifar10"]

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
RECORD = 1 + 3 * 32 * 32


def normalize(pixels: Tensor) -> Tensor:
    """uint8 images [N, 3, 32, 32] to the float32 input of the models."""
    mean, std = (torch.tensor(c).view(3, 1, 1) for c in (MEAN, STD))
    return (pixels.float() / 255.0 - mean) / std


def read_cifar10(root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """uint8 images [N, 3, 32, 32] and int64 labels [N] of one split."""
    folder = root / "cifar-10-batches-bin" if (root / "cifar-10-batches-bin").is_dir() else root
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    parts = []
    for name in names:
        raw = np.fromfile(folder / name, dtype=np.uint8)
        if raw.size == 0 or raw.size % RECORD:
            raise ValueError(f"{folder / name}: {raw.size} bytes are not whole CIFAR-10 records of {RECORD}")
        parts.append(raw.reshape(-1, RECORD))
    rows = torch.from_numpy(np.concatenate(parts))
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()

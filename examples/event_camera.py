"""Streaming from an event camera: frames go in one at a time, the states stay packed between them.

    python examples/event_camera.py

A recording is made here and written to a file, events.npz with t (microseconds), x, y and p (1 brighter, 0
darker); then it is read as if it came from a camera.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import ptq4snn
from ptq4snn.models.neuron import LIF

SIZE, STEPS, WINDOW = 16, 8, 10_000  # pixels, frames of a recording, microseconds of a frame


class Net(nn.Module):
    """Which way does the edge move? [T, B, 2, 16, 16] -> [B, 4]; untrained, put yours in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lif1 = nn.Conv2d(2, 8, 3, stride=2, padding=1), LIF(v_threshold=0.3)
        self.conv2, self.lif2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), LIF(v_threshold=0.1)
        self.head = nn.Linear(16 * 4 * 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps, batch = x.shape[:2]
        x = self.lif1(self.conv1(x.flatten(0, 1)).unflatten(0, (steps, batch)))
        x = self.lif2(self.conv2(x.flatten(0, 1)).unflatten(0, (steps, batch)))
        return self.head(x.flatten(2)).mean(0)


def record(path: Path, seed: int) -> None:
    """A bright edge that crosses the sensor: each column brightens as it comes and darkens as it goes."""
    rng = np.random.default_rng(seed)
    column, row = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    arrival = column.ravel() * (STEPS * WINDOW // SIZE)
    t = np.concatenate([arrival, arrival + 2 * WINDOW]) + rng.integers(0, 2_000, 2 * SIZE * SIZE)
    order = np.argsort(t, kind="stable")
    x, y = np.tile(column.ravel(), 2)[order], np.tile(row.ravel(), 2)[order]
    np.savez(path, t=t[order], x=x, y=y, p=np.repeat([1, 0], SIZE * SIZE)[order])


def frames(path: Path) -> Iterator[np.ndarray]:
    """Counts [2, H, W] of each window of the recording, one after the other."""
    with np.load(path, allow_pickle=False) as file:
        t, x, y, p = (file[name] for name in "txyp")
    for start in range(0, STEPS * WINDOW, WINDOW):
        now = (t >= start) & (t < start + WINDOW)
        frame = np.zeros((2, SIZE, SIZE), np.float32)
        np.add.at(frame, (p[now], y[now], x[now]), 1)
        yield frame


def main() -> None:
    torch.manual_seed(0)
    for seed in range(16):
        record(Path(f"events{seed}.npz"), seed)
    recordings = [np.stack(list(frames(Path(f"events{seed}.npz")))) for seed in range(16)]
    samples = torch.from_numpy(np.stack(recordings, 1))  # [T, B, 2, H, W]

    q = ptq4snn.quantize(Net().eval(), samples, "w4m4", batch_axis=1)
    q.save("event_camera.ptq")

    rt = ptq4snn.runtime.load("event_camera.ptq")
    for number, frame in enumerate(frames(Path("events0.npz"))):
        logits = rt.step(frame[None])  # a batch of one; what was seen so far
        print(f"{(number + 1) * WINDOW // 1000:3d} ms  events {int(frame.sum()):3d}  {logits[0].round(3)}")

    whole = rt(samples[:, :1].numpy())  # the whole sequence at once gives the same bits
    assert np.array_equal(logits, whole)


if __name__ == "__main__":
    main()

"""Frames of events against a loop over the events, and what is said about damaged recordings."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ptq4snn.data.events import (
    Events,
    check_events,
    frames_by_number,
    frames_by_time,
    open_integers,
    open_npz,
    resize,
)
from ptq4snn.errors import DataError

WIDTH, HEIGHT = 5, 3


def recording(n: int, seed: int = 0) -> Events:
    rng = np.random.default_rng(seed)
    x, y, p = (rng.integers(0, end, n) for end in (WIDTH, HEIGHT, 2))
    return Events(np.sort(rng.integers(0, 1000, n)), x, y, p, WIDTH, HEIGHT)


def loop(events: Events, frame_of: list[int | None], steps: int) -> np.ndarray:
    frames = np.zeros((steps, 2, HEIGHT, WIDTH), np.int64)
    for i, frame in enumerate(frame_of):
        if frame is not None:
            frames[frame, events.p[i], events.y[i], events.x[i]] += 1
    return frames


@pytest.mark.parametrize("n", [3, 4, 23, 40])  # fewer than frames, one each, with a rest, without
def test_frames_by_number(n: int) -> None:
    events, steps = recording(n), 4
    share = n // steps
    bounds = [(i * share, (i + 1) * share if i < steps - 1 else n) for i in range(steps)]
    frame_of = [next(f for f, (a, b) in enumerate(bounds) if a <= i < b) for i in range(n)]
    frames = frames_by_number(events, steps)
    assert np.array_equal(frames, loop(events, list(frame_of), steps))
    assert frames.sum((1, 2, 3)).tolist() == [b - a for a, b in bounds]


def test_frames_by_number_follow_the_order_of_the_recording_not_the_time() -> None:
    t, x, y, p = (np.array(v) for v in ([9, 1], [0, 4], [0, 2], [1, 0]))
    events = Events(t, x, y, p, WIDTH, HEIGHT)
    frames = frames_by_number(events, 2)
    assert frames[0, 1, 0, 0] == 1
    assert frames[1, 0, 2, 4] == 1


def test_frames_by_time() -> None:
    events, steps, width = recording(60), 7, 100
    frame_of = [int(t) // width if t < steps * width else None for t in events.t]
    assert None in frame_of, "some events must be late"
    assert np.array_equal(frames_by_time(events, steps, width), loop(events, frame_of, steps))


def test_no_frames() -> None:
    with pytest.raises(DataError, match="cannot be cut into 0 frames"):
        frames_by_number(recording(5), 0)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("x", WIDTH, "x = 5 is not in 0 .. 4"),
        ("y", HEIGHT, "y = 3 is not in 0 .. 2"),
        ("y", -1, "y = -1 is not in 0 .. 2"),
        ("p", 2, "p = 2 is not in 0 .. 1"),
    ],
)
def test_events_outside_the_sensor(key: str, value: int, says: str) -> None:
    events = recording(6)
    getattr(events, key)[4] = value
    with pytest.raises(DataError, match=f"^somewhere is damaged or of another camera: {says}$"):
        check_events(events, "somewhere")


def test_events_that_are_none_or_uneven() -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(DataError, match="somewhere holds no events"):
        check_events(Events(none, none, none, none, WIDTH, HEIGHT), "somewhere")
    some = np.zeros(2, np.int64)
    with pytest.raises(DataError, match="somewhere is damaged: t, x, y and p have different lengths"):
        check_events(Events(some, some, none, some, WIDTH, HEIGHT), "somewhere")


def test_resize_halves_with_the_antialiasing_triangle() -> None:
    """A scale of 2 weighs four neighbours by 1 3 3 1; at the border the weights left are normalised."""
    x = torch.from_numpy(recording_frames())  # [T, 2, 4, 4]
    weights = torch.tensor([[3.0, 3, 1, 0], [0, 1, 3, 3]], dtype=torch.float64) / 7
    expected = weights @ x @ weights.T
    assert torch.allclose(resize(x, (2, 2)), expected, rtol=0, atol=1e-12)
    assert resize(x, (4, 4)) is x


def recording_frames() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 9, (3, 2, 4, 4)).astype(np.float64)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, b=np.arange(3), a=np.arange(4.0), c=np.array([None, "x"]))
    assert list(open_npz(path, ("a", "b"))) == ["a", "b"]
    with pytest.raises(DataError, match=r"a\.npz holds no z, y: expected the arrays z, b, y$"):
        open_npz(path, ("z", "b", "y"))
    with pytest.raises(DataError, match=r"a\.npz: a is float64 \[4\] instead of integers \[n\]"):
        open_integers(path, ("b", "a"))
    with pytest.raises(DataError, match=r"not an \.npz file of numbers"):  # pickled objects
        open_npz(path, ("c",))


@pytest.mark.parametrize("damage", ["missing", "folder", "empty", "text", "npy", "half", "flipped"])
def test_npz_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).integers(0, 9, 500))
    whole = path.read_bytes()
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    elif damage in ("missing", "folder"):
        path.unlink()
        if damage == "folder":
            path.mkdir()
    else:
        middle = len(whole) // 2
        path.write_bytes(
            {
                "empty": b"",
                "text": b"no zip file",
                "half": whole[:middle],
                "flipped": whole[:middle]
                + bytes(255 - b for b in whole[middle : middle + 20])
                + whole[middle + 20 :],
            }[damage]
        )
        assert damage != "flipped" or zipfile.is_zipfile(path)
    with pytest.raises(DataError, match=r"a\.npz"):
        open_npz(path, ("a",))

"""The event simulator against a camera pixel written as a plain loop, and against physics."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from ptq4snn.data.event_simulator import Camera, simulate_events, thresholds
from ptq4snn.data.events import Events
from ptq4snn.errors import DataError

QUIET = Camera(sensor=8, amplitude=2.0, loops=1, loop_us=80_000, mismatch=0.0, noise_hz=0.0)


def picture(size: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, (size, size))


def edge(size: int = 8, dark: float = 0.1, bright: float = 0.9) -> np.ndarray:
    """Dark on the left half, bright on the right."""
    image = np.full((size, size), bright)
    image[:, : size // 2] = dark
    return image


def counts(events: Events) -> np.ndarray:
    """[2, H, W] of the whole recording."""
    n = np.zeros((2, events.height, events.width), int)
    np.add.at(n, (events.p, events.y, events.x), 1)
    return n


def position(time: float, camera: Camera) -> tuple[float, float]:
    """(dy, dx) of the image at a time in loops: top, right, bottom, left corner of the diamond, top."""
    a = camera.amplitude
    corners = [(-a, 0.0), (0.0, a), (a, 0.0), (0.0, -a), (-a, 0.0)]
    stroke = min(int(time * 4), 3)
    part = time * 4 - stroke
    (y0, x0), (y1, x1) = corners[stroke], corners[stroke + 1]
    return y0 + part * (y1 - y0), x0 + part * (x1 - x0)


def seen(image: np.ndarray, y: float, x: float) -> float:
    """Bilinear between the pixels, the edge continued."""
    end = len(image) - 1

    def pixel(row: int, column: int) -> float:
        return float(image[min(max(row, 0), end), min(max(column, 0), end)])

    row, column = math.floor(y), math.floor(x)
    v, u = y - row, x - column
    upper = pixel(row, column) * (1 - u) + pixel(row, column + 1) * u
    lower = pixel(row + 1, column) * (1 - u) + pixel(row + 1, column + 1) * u
    return upper * (1 - v) + lower * v


def loop_over_pixels(image: np.ndarray, camera: Camera) -> list[tuple[float, int, int, int]]:
    """(t, x, y, p) of a camera without mismatch or noise, one pixel and one crossing at a time."""
    per_loop = 4 * math.ceil(camera.amplitude * math.sqrt(2) / camera.step)
    step_us = camera.loop_us / per_loop
    events = []
    for y in range(camera.sensor):
        for x in range(camera.sensor):
            log = []
            for s in range(per_loop + 1):
                dy, dx = position(s / per_loop, camera)
                log.append(math.log(seen(image, y - dy, x - dx) + camera.dark))
            log += log[1:] * (camera.loops - 1)
            level = log[0]
            for s, (before, now) in enumerate(pairwise(log)):
                while now - level >= camera.on * (1 - 1e-9):
                    level += camera.on
                    events.append(((s + (level - before) / (now - before)) * step_us, x, y, 1))
                while level - now >= camera.off * (1 - 1e-9):
                    level -= camera.off
                    events.append(((s + (level - before) / (now - before)) * step_us, x, y, 0))
    return events


@pytest.mark.parametrize(
    "camera", [QUIET, replace(QUIET, loops=2, on=0.11, off=0.23, amplitude=1.3)], ids=["plain", "other"]
)
def test_every_event_of_a_pixel_by_pixel_camera(camera: Camera) -> None:
    image = picture()
    found, wanted = simulate_events(image, camera), loop_over_pixels(image, camera)
    assert len(found) == len(wanted) > 500
    assert (np.diff(found.t) >= 0).all()
    by_pixel = sorted(zip(found.x, found.y, found.t, found.p, strict=True))
    for (x, y, t, p), (wx, wy, wt, wp) in zip(
        by_pixel, sorted((e[1], e[2], e[0], e[3]) for e in wanted), strict=True
    ):
        assert (x, y, p) == (wx, wy, wp)
        assert wt - 1 - 1e-6 <= t <= wt + 1e-6, "whole microseconds"


def test_a_uniform_image_gives_only_noise() -> None:
    grey = np.full((8, 8), 0.4)
    assert len(simulate_events(grey, replace(QUIET, mismatch=0.2))) == 0
    noisy = replace(QUIET, noise_hz=5.0, loop_us=1_000_000)
    numbers = [len(simulate_events(grey, noisy, number=i)) for i in range(30)]
    expected = 5 * 64  # per second
    assert abs(np.mean(numbers) - expected) < 5 * math.sqrt(expected / 30)
    assert len(set(numbers)) > 5


def test_a_step_edge_gives_on_on_one_side_and_off_on_the_other() -> None:
    """Right, then back and left, then back: the edge passes two columns on either side twice."""
    camera = replace(QUIET, amplitude=2.0, on=0.3, off=0.3)
    n = counts(simulate_events(edge(), camera))
    crossed = math.floor(math.log((0.9 + camera.dark) / (0.1 + camera.dark)) / 0.3)
    assert crossed == 6
    assert (n[:, :, 2:6] == crossed).all()
    assert (n[:, :, :2] == 0).all()
    assert (n[:, :, 6:] == 0).all()
    events = simulate_events(edge(), camera)
    first_half = events.t <= camera.loop_us // 2
    right = events.x >= 4
    # the image moves right first: the columns on the right turn dark, then bright again
    assert right[first_half].all()
    assert not right[~first_half].any()
    first_quarter = events.t <= camera.loop_us // 4
    assert (events.p[first_quarter] == 0).all()
    assert (events.p[first_half & ~first_quarter] == 1).all()


def test_a_closed_loop_is_balanced_in_every_pixel() -> None:
    n = counts(simulate_events(picture(), replace(QUIET, loops=3)))
    assert n.sum() > 1000
    assert np.array_equal(n[0], n[1])


def test_twice_the_threshold_gives_about_half_the_events() -> None:
    few, many = (len(simulate_events(picture(), replace(QUIET, on=c, off=c))) for c in (0.2, 0.1))
    assert 0.35 < few / many < 0.55


def test_thresholds_differ_between_pixels_and_comparators() -> None:
    camera = Camera(sensor=64, mismatch=0.1, on=0.3, off=0.2)
    on, off = thresholds(camera, np.random.default_rng(0))
    for values, middle in ((on, 0.3), (off, 0.2)):
        assert np.log(values / middle).std() == pytest.approx(0.1, rel=0.05)
        assert abs(np.log(values / middle).mean()) < 0.01
    assert abs(np.corrcoef(on.ravel(), off.ravel())[0, 1]) < 0.1


def test_the_seed_and_the_number_decide_everything_random() -> None:
    camera = replace(QUIET, mismatch=0.1, noise_hz=10.0)
    state, torch_state = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002
    one, again, other, reseeded = (
        simulate_events(picture(), camera, seed=s, number=n) for s, n in ((0, 3), (0, 3), (0, 4), (1, 3))
    )
    for key in ("t", "x", "y", "p"):
        assert np.array_equal(getattr(one, key), getattr(again, key))
    assert not np.array_equal(one.t, other.t)
    assert not np.array_equal(one.t, reseeded.t)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert np.array_equal(state["state"]["key"], after["state"]["key"])
    assert torch.equal(torch_state, torch.get_rng_state())


def test_sizes_and_times() -> None:
    camera = Camera(sensor=12, image=20, amplitude=1.0, loops=2, loop_us=50_000)
    events = simulate_events(picture(5), camera)
    assert (events.width, events.height) == (12, 12)
    assert 0 <= events.t.min() < 5_000
    assert 95_000 < events.t.max() <= 100_000
    # a wider image shows its middle: the same as cutting the middle out, but for the border that moves in
    wide = picture(12)
    narrow, middle = (
        counts(simulate_events(image, replace(QUIET, image=side, amplitude=1.0)))
        for image, side in ((wide, 12), (wide[2:10, 2:10], 8))
    )
    assert np.array_equal(narrow[:, 1:-1, 1:-1], middle[:, 1:-1, 1:-1])
    assert not np.array_equal(narrow, middle)


@pytest.mark.parametrize(
    ("key", "value"), [("sensor", 0), ("on", 0.0), ("off", -1.0), ("loops", 0), ("dark", float("nan"))]
)
def test_impossible_cameras(key: str, value: float) -> None:
    change: dict[str, Any] = {key: value}
    with pytest.raises(DataError, match=f"the simulated camera has {key} {value}: give more than 0"):
        replace(QUIET, **change)


def test_impossible_images_and_seeds() -> None:
    for image in (np.ones((2, 2, 3)), np.full((2, 2), np.nan), np.full((2, 2), -0.1), np.ones((0, 2))):
        with pytest.raises(DataError, match="give intensities >= 0"):
            simulate_events(image, QUIET)
    with pytest.raises(DataError, match="noise_hz -1: give 0 or more"):
        replace(QUIET, noise_hz=-1)
    with pytest.raises(DataError, match="seed -1"):
        simulate_events(picture(), QUIET, seed=-1)

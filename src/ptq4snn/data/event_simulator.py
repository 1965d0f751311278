"""Simulated event recordings of still images, made the way CIFAR10-DVS was.

The image moves along a closed diamond of four diagonal strokes, again and again. A pixel that sees the
log-intensity L = ln(I + dark) keeps the level r of its last event and fires whenever L has left it by its
threshold:

    ON   while L - r >= c_on:   r += c_on
    OFF  while r - L >= c_off:  r -= c_off

L is linear in time between two steps of the movement, so every crossing has a time of its own.
Not simulated: bandwidth of the pixel, refractory time, arbitration of the bus, flicker of a monitor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ptq4snn.data.events import Events, Integers, resize
from ptq4snn.errors import DataError

__all__ = ["Camera", "simulate_events"]

Floats = npt.NDArray[np.float64]
STROKES = ((1, 1), (1, -1), (-1, -1), (-1, 1))  # signs of (dy, dx), from the upper corner of the diamond
SLACK = 1 + 1e-9  # a loop ends where it began, exactly a threshold away: rounding must not decide


@dataclass(frozen=True)
class Camera:
    """Sensor, movement and noise of a simulated recording."""

    sensor: int = 128  # pixels a side
    image: int | None = None  # side of the image on the sensor; None: it fills the sensor
    amplitude: float = 8.0  # from the centre of the diamond to a corner, in sensor pixels
    loops: int = 6
    loop_us: int = 200_000  # so the speed is 4 sqrt(2) amplitude / loop_us
    step: float = 0.25  # of the movement, in sensor pixels, at most
    on: float = 0.3  # contrast thresholds, in units of ln(intensity)
    off: float = 0.3
    dark: float = 0.05  # intensity that the sensor sees in black; 1 is white
    mismatch: float = 0.05  # sigma of ln(threshold) over the pixels
    noise_hz: float = 0.1  # events of background activity per pixel and second

    def __post_init__(self) -> None:
        positive = ("sensor", "amplitude", "loops", "loop_us", "step", "on", "off", "dark")
        for name in positive:
            if not getattr(self, name) > 0:
                raise DataError(f"the simulated camera has {name} {getattr(self, name)}: give more than 0")
        for name in ("mismatch", "noise_hz"):
            if not getattr(self, name) >= 0:
                raise DataError(f"the simulated camera has {name} {getattr(self, name)}: give 0 or more")


def simulate_events(image: npt.ArrayLike, camera: Camera, *, seed: int = 0, number: int = 0) -> Events:
    """The recording of an image [H, W] of intensities 0..1; (seed, number) alone decides what is random."""
    if seed < 0 or number < 0:
        raise DataError(f"cannot simulate with seed {seed} and number {number}: give 0 or more")
    rng = np.random.default_rng((seed, number))
    pixels = on_sensor(np.asarray(image, np.float64), camera)
    loop = np.log(views(pixels, camera) + camera.dark)  # [S + 1, H, W], first and last are equal
    signal = crossings(loop, thresholds(camera, rng), camera)
    return merge(signal, background(camera, rng), camera.sensor)


def on_sensor(image: Floats, camera: Camera) -> Floats:
    """The image at the size that it has on the sensor."""
    if image.ndim != 2 or image.size == 0 or not np.isfinite(image).all() or image.min() < 0:
        raise DataError(f"cannot record an image of shape {list(image.shape)}: give intensities >= 0, [H, W]")
    side = camera.image or camera.sensor
    scaled: Floats = resize(torch.from_numpy(image)[None], (side, side))[0].numpy()
    return scaled


def path(camera: Camera) -> Floats:
    """Positions (dy, dx) [S + 1, 2] of one loop around the centre, from corner to corner and back."""
    a = camera.amplitude
    per_stroke = int(np.ceil(a * np.sqrt(2) / camera.step))
    fraction = np.arange(1, per_stroke + 1)[:, None] / per_stroke
    corner = np.array([-a, 0.0])
    parts = [corner[None]]
    for sign in STROKES:
        parts.append(corner + a * fraction * np.array(sign))
        corner = parts[-1][-1]
    return np.concatenate(parts)


def views(pixels: Floats, camera: Camera) -> Floats:
    """What the sensor sees [S + 1, H, W]: the moved image between its pixels, its edge continued outside."""
    start = (len(pixels) - camera.sensor) / 2  # the image is centred
    at = np.arange(camera.sensor) + start - path(camera)[:, :, None]  # [S + 1, 2, sensor]
    low = np.floor(at)
    weight = at - low
    first, second = (np.clip(low + k, 0, len(pixels) - 1).astype(np.int64) for k in (0, 1))
    wy, wx = weight[:, 0, :, None], weight[:, 1, None, :]
    rows = pixels[first[:, 0]] * (1 - wy) + pixels[second[:, 0]] * wy  # [S + 1, sensor, image]
    left, right = (np.take_along_axis(rows, i[:, 1, None, :], 2) for i in (first, second))
    seen: Floats = left * (1 - wx) + right * wx
    return seen


def thresholds(camera: Camera, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """ON and OFF thresholds [H, W]; each comparator has its own mismatch."""
    spread = np.exp(camera.mismatch * rng.standard_normal((2, camera.sensor, camera.sensor)))
    return camera.on * spread[0], camera.off * spread[1]


def crossings(log: Floats, threshold: tuple[Floats, Floats], camera: Camera) -> list[Integers]:
    """t, x, y, p of the crossings, by step and pixel; `log` is ln(intensity) [S + 1, H, W] of one loop."""
    steps, (h, w) = len(log) - 1, log.shape[1:]
    log = log.reshape(steps + 1, h * w)
    on, off = (c.reshape(h * w) for c in threshold)
    before = np.empty((camera.loops * steps, h * w))  # level of each pixel when the step begins
    moves = np.empty(before.shape, np.int32)  # thresholds crossed in the step, OFF negative
    level = log[0].copy()
    for i in range(len(moves)):
        before[i] = level
        change = log[i % steps + 1] - level
        size = np.where(change > 0, on, off)
        n = np.trunc(change / size * SLACK)
        moves[i] = n
        level += n * size

    s, pixel = np.nonzero(moves)
    repeats = np.abs(moves[s, pixel])
    nth = np.arange(1, repeats.sum() + 1) - np.repeat(np.cumsum(repeats) - repeats, repeats)  # 1, 2, ..
    s, pixel = np.repeat(s, repeats), np.repeat(pixel, repeats)
    brighter = moves[s, pixel] > 0
    crossed = before[s, pixel] + nth * np.where(brighter, on[pixel], -off[pixel])
    start, stop = log[s % steps, pixel], log[s % steps + 1, pixel]
    fraction = np.clip((crossed - start) / (stop - start), 0, 1)
    t = ((s + fraction) * (camera.loop_us / steps)).astype(np.int64)
    return [t, pixel % w, pixel // w, brighter.astype(np.int64)]


def background(camera: Camera, rng: np.random.Generator) -> list[Integers]:
    """t, x, y, p of noise: a Poisson process that is the same in every pixel."""
    duration = camera.loops * camera.loop_us
    count = rng.poisson(camera.noise_hz * duration * 1e-6 * camera.sensor**2)
    return [rng.integers(0, end, count) for end in (duration, camera.sensor, camera.sensor, 2)]


def merge(signal: list[Integers], noise: list[Integers], sensor: int) -> Events:
    """Both, in order of time; equal times keep the order step, pixel, noise."""
    t, x, y, p = (np.concatenate(pair) for pair in zip(signal, noise, strict=True))
    order = np.argsort(t, kind="stable")
    return Events(t[order], x[order], y[order], p[order], sensor, sensor)

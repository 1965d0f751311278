"""A PNG without an image library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["data_url", "png"]

TRUECOLOUR = (8, 2, 0, 0, 0)  # bits of a channel, colour type, compression, filters, interlace


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The file of an image [H, W, 3]."""
    height, width, _ = pixels.shape
    left = np.pad(pixels, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    rows = (pixels - left).reshape(height, -1)  # filter 1: differences from the left, modulo 256
    body = np.pad(rows, ((0, 0), (1, 0)), constant_values=1).tobytes()

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, *TRUECOLOUR)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(body, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def data_url(pixels: NDArray[Any]) -> str:
    """An image [H, W, 3] for a page that loads nothing."""
    return "data:image/png;base64," + base64.b64encode(png(pixels.astype(np.uint8))).decode()

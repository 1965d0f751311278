"""What makes data the data they are: every byte of every sample, in order, with its label.

Reading a large data set takes minutes. The hash of samples that come from files is therefore kept in a
folder, under the paths, sizes and times of change of the files: while those stay, a second run need not read
them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ptq4snn.data.samples import SampleBatches
from ptq4snn.errors import OutputError
from ptq4snn.files import write_whole
from ptq4snn.forms import batches_in, inputs_and_labels
from ptq4snn.hashing import Hash, code_digest, digest

__all__ = ["FOLDER", "data_digest"]

AT_ONCE = 64  # samples that are read at a time
FOLDER = "data"  # in the folder of a run
SETTLED_NS = (
    2_000_000_000  # a file that changed later than this ago may change again within one tick of its clock
)


def data_digest(data: Any, limit: int | None = None, axis: int = 0, folder: Path | None = None) -> str:
    """Of the first `limit` samples (all without it) of batches x or (x, y), samples on `axis`.

    It does not depend on how many samples are in a batch. `folder`: where hashes of files are kept.
    """
    if not isinstance(data, SampleBatches):
        return _content(batches_in(data, axis), limit, axis)
    chosen: Sequence[int] = data.indices if limit is None else data.indices[:limit]
    batches = SampleBatches(data.samples, min(data.batch_size, AT_ONCE), data.workers, chosen)
    key = _key(data.samples, chosen, axis)
    place = None if key is None or folder is None else folder / FOLDER / f"{key}.sha256"
    found = None if place is None else _kept(place)
    if found is None:
        found = _content(batches, None, axis)
        if place is not None and _key(data.samples, chosen, axis) == key:  # nothing changed meanwhile
            _keep(place, found)
    return found


def _content(batches: Iterable[Any], limit: int | None, axis: int) -> str:
    content, count = Hash(), 0
    for batch in batches:
        x, y = inputs_and_labels(batch)
        size = x.shape[axis] if x.dim() > axis else 0
        size = size if limit is None else min(size, limit - count)
        inputs = x.detach().cpu().movedim(axis, 0) if x.dim() > axis else x[None]
        for i in range(size):
            content.add(inputs[i])
            content.add(None if y is None else y[i])
        count += size
        if count == limit:
            break
    content.add(count)
    return content.hexdigest()


def _key(samples: Any, chosen: Sequence[int], axis: int) -> str | None:
    """Of what decides the samples: their files as they are now, and how they are read; None without files."""
    origin = samples.origin(chosen) if hasattr(samples, "origin") else None
    if origin is None:
        return None
    now, seen = time.time_ns(), []
    for path in dict.fromkeys(origin.files):
        try:
            found = path.stat()
        except OSError:
            return None
        if found.st_mtime_ns > now - SETTLED_NS:
            return None
        seen.append([str(path.resolve()), found.st_size, found.st_mtime_ns])
    numbers = [chosen.start, chosen.stop, chosen.step] if isinstance(chosen, range) else list(chosen)
    return digest(code_digest(), type(samples).__name__, origin.settings, numbers, axis, seen)[:32]


def _kept(place: Path) -> str | None:
    try:
        found = place.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return found if re.fullmatch("[0-9a-f]{64}", found) else None


def _keep(place: Path, found: str) -> None:
    """A folder that cannot be written to costs time, not the run."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, found)
    except (OSError, OutputError):
        return

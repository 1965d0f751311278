"""What discovery found, as plain text: one line per neuron, then what never ran."""

from __future__ import annotations

from collections.abc import Iterable

from ptq4snn.discovery.discover import Discovery
from ptq4snn.discovery.info import NeuronInfo

__all__ = ["render"]

WIDTH = 110
COLUMNS = ("neuron", "kind", "fed by", "BatchNorm", "state", "T", "notes")
LIMITS = (28, 6, 30, 22, 14, 4, 24)  # only names are ever shortened


def render(discovery: Discovery) -> str:
    """A table of the neurons, counts, and lists of unused neurons and projections."""
    neurons = discovery.neurons.values()
    rows = [_row(n) for n in neurons]
    widths = [min(limit, max(len(r[i]) for r in (COLUMNS, *rows))) for i, limit in enumerate(LIMITS)]
    lines = [_line(COLUMNS, widths)]
    lines.append("-" * min(WIDTH, sum(widths) + 2 * (len(widths) - 1)))
    lines += [_line(r, widths) for r in rows]
    kinds = ", ".join(f"{sum(n.kind == k for n in neurons)} {k}" for k in ("pair", "stream", "bare"))
    states = sum(n.layout.channels * n.layout.elements for n in neurons if n.carries_state)
    lines += [
        "",
        f"{len(rows)} neurons ({kinds}) with {states:,} states; {len(discovery.projections)} projections",
    ]
    lines += _listed("neurons that never run", discovery.unused_neurons)
    lines += _listed("projections that never run", discovery.unused_projections)
    return "\n".join(lines)


def _row(n: NeuronInfo) -> list[str]:
    sources = n.projections or n.spike_sources
    shape = "x".join(map(str, n.layout.shape))
    return [n.name, n.kind, _first(sources), _first(n.norms), shape, str(n.steps), _notes(n)]


def _first(names: tuple[str, ...]) -> str:
    """A long sum has many writers: the last one names the place, a number tells the rest."""
    if not names:
        return "-"
    return names[0] if len(names) == 1 else f"{names[-1]} +{len(names) - 1}"


def _notes(n: NeuronInfo) -> str:
    marks = (
        (n.stem, "stem"),
        (n.readout, "readout"),
        (n.last, "last"),
        (n.zero_state, "zero state"),
        (n.steps <= 1, "one step, no state"),
    )
    return ", ".join(text for true, text in marks if true)


def _line(cells: Iterable[str], widths: list[int]) -> str:
    short = (c if len(c) <= w else f"..{c[len(c) - w + 2 :]}" for c, w in zip(cells, widths, strict=True))
    return "  ".join(c.ljust(w) for c, w in zip(short, widths, strict=True)).rstrip()[:WIDTH]


def _listed(title: str, names: tuple[str, ...]) -> list[str]:
    """`title: a, b, c`, broken into lines of at most WIDTH columns."""
    if not names:
        return []
    lines, line = [], f"{title}:"
    for i, name in enumerate(names):
        word = f" {name}{',' if i + 1 < len(names) else ''}"
        if len(line) + len(word) > WIDTH and line.strip():
            lines.append(line)
            line = "   "
        line += word
    return [*lines, line]

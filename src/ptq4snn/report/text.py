"""Plain text for people: aligned tables, numbers, bars. Nothing here knows what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Grid", "Marks", "aligned", "bar", "number", "printable", "shortened", "sparkline", "table"]

WIDTH = 110
GAP = "  "


class Marks:
    """The characters of bars and arrows, in two sets of the same meaning."""

    def __init__(self, unicode: bool) -> None:
        self.unicode = unicode
        self.levels = "▁▂▃▄▅▆▇█" if unicode else " .:-=+*#%@"  # of a sparkline
        self.parts = " ▏▎▍▌▋▊▉█" if unicode else " #"  # of a bar's last character; the last is a full one
        self.rest = "·" if unicode else "."  # what a bar could still hold
        self.arrow = "→" if unicode else "->"
        self.times = "×" if unicode else "x"
        self.rule = "─" if unicode else "-"


ASCII = Marks(unicode=False)


def number(value: float | None, pattern: str = "{:.2f}", factor: float = 1.0, missing: str = "") -> str:
    """Blank, or `missing`, for what does not exist."""
    return missing if value is None else pattern.format(value * factor)


def printable(text: str) -> str:
    """A name in a stranger's file must not steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def shortened(text: str, width: int) -> str:
    """The end of a module path tells more than its beginning."""
    return text if len(text) <= width else f"..{text[len(text) - width + 2 :]}"


def aligned(rows: Sequence[Sequence[str]], left: int, width: int = WIDTH) -> list[list[str]]:
    """The cells, padded: `left` columns to the left, the others to the right.

    The first column gives way where the lines would become wider than `width`.
    """
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    widths[0] = min(widths[0], width - sum(widths[1:]) - len(GAP) * len(widths[1:]))

    def padded(row: Sequence[str]) -> list[str]:
        cells = [shortened(c, w).ljust(w) for c, w in zip(row[:left], widths, strict=False)]
        return cells + [c.rjust(w) for c, w in zip(row[left:], widths[left:], strict=True)]

    return [padded(r) for r in rows]


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Aligned lines under a rule, at most WIDTH columns wide."""
    head, *body = [GAP.join(cells) for cells in aligned([titles, *rows], left)]
    return [head.rstrip(), "-" * len(head), *(line.rstrip() for line in body)]


@dataclass(frozen=True)
class Grid:
    """A table before it is set: the first `left` columns are words, the others figures."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1

    @classmethod
    def of(cls, titles: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> Grid:
        return cls(tuple(titles), tuple(tuple(r) for r in rows), left)

    def lines(self) -> list[str]:
        """As aligned text."""
        return table(self.titles, self.rows, self.left)


def bar(share: float, width: int, marks: Marks = ASCII) -> str:
    """A bar of at most `width` characters; what is not zero shows."""
    steps = len(marks.parts) - 1
    filled = round(width * steps * min(max(share, 0.0), 1.0))
    filled = max(filled, 1) if share > 0 else 0
    whole, part = divmod(filled, steps)
    return marks.parts[-1] * whole + (marks.parts[part] if part else "")


def sparkline(values: Sequence[float | None], marks: Marks = ASCII) -> str:
    """A curve or histogram in one line, from zero to its own largest value; blank where there is none."""
    top = max((v for v in values if v is not None), default=0.0) or 1.0
    last = len(marks.levels) - 1
    return "".join(" " if v is None else marks.levels[min(last, round(last * v / top))] for v in values)

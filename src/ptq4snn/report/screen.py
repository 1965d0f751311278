"""The parts of a report on one screen: some 40 lines of at most 100 columns.

A line is a list of (text, style) pairs. Where there is no terminal the text is all there is, so a style never
says what the text does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from ptq4snn.report import digest
from ptq4snn.report.figures import frontier
from ptq4snn.report.text import ASCII, GAP, Marks, aligned, bar, number, printable, shortened, sparkline
from ptq4snn.report.units import many, size, smaller
from ptq4snn.schema.report_types import BeforeAfter, Counts, Neuron, Report, StateWords, Summary

__all__ = ["WIDTH", "Line", "screen"]

Line = list[tuple[str, str]]

WIDTH = 100
LAYERS, STAGES, EVALUATIONS, TRIED = 13, 5, 1, 5  # as many as one screen holds
LABEL, HALF, RIGHT = 16, 47, 15  # columns of a label, where the second one of a line begins, and of that
MEMORY_BAR, STAGE_BAR, STAGE_NAME, FLIP_BAR, CURVE = 20, 40, 20, 8, 8
# widths up to: character, colour. In ASCII a width below 10 is its own digit
SHADES = {3: ("░", "green"), 5: ("▒", "cyan"), 8: ("▓", "blue"), 16: ("█", "magenta"), 32: ("█", "red")}
WIDE = {16: "#", 32: "@"}


def screen(report: Report, everything: bool = False, marks: Marks = ASCII, width: int = WIDTH) -> list[Line]:
    """Recipe, totals, bits by stage, layers, notes; `everything`: all layers and stages."""
    summary, neurons = report.get("summary") or {}, report.get("neurons") or []
    frontier_lines = _frontier(report, everything)
    layers = len(neurons) if everything else LAYERS - (len(frontier_lines) + 1 if frontier_lines else 0)
    parts = [
        _headline(summary, width),
        [*_accuracy(report, marks), *_totals(summary, marks), *_neurobench(summary, marks)],
        frontier_lines,
        _stages(neurons, everything, marks),
        _layers(neurons, layers, marks, width),
        [_note(text) for text in digest.notes(report)],
    ]
    lines: list[Line] = []
    for part in parts:
        lines += [[], *part] if lines and part else part
    return [_cropped([(printable(text), style) for text, style in line], width) for line in lines]


def _cropped(line: Line, width: int) -> Line:
    """At most `width` columns; dots tell that there was more."""
    if sum(len(text) for text, _ in line) <= width:
        return line
    kept: Line = []
    room = width - 2
    for text, style in line:
        kept.append((text[:room], style))
        room -= len(kept[-1][0])
    return [*kept, ("..", "")]


def _headline(summary: Summary, width: int) -> list[Line]:
    """The words of the recipe, on a second line where there is no room."""
    first, *words = digest.headline(summary)
    lines: list[Line] = [[(first, "bold")]]
    for word in words:
        if sum(len(text) for text, _ in lines[-1]) + len(GAP) + len(word) > width:
            lines.append([(" " * len(first), "")])
        lines[-1].append((f"{GAP}{word}", ""))
    return lines


def _grade(value: float, good: float, poor: float) -> str:
    """A colour; `good` may be above or below `poor`."""
    sign = 1 if good > poor else -1
    return "green" if sign * value >= sign * good else "yellow" if sign * value >= sign * poor else "red"


def _labelled(label: str, value: str, style: str = "bold", rest: str = "") -> Line:
    return [(f"{label:<{LABEL}}{GAP}", "dim"), (value, style), (rest, "")]


def _in_pairs(lines: Sequence[Line]) -> Iterator[Line]:
    """Two short lines on each."""
    for left, right in zip_longest(lines[::2], lines[1::2]):
        if right:
            (label, style), *rest = right
            gap = " " * max(2, HALF - sum(len(text) for text, _ in left))
            yield [*left, (gap, ""), (f"{label.strip():<{RIGHT}}{GAP}", style), *rest]
        else:
            yield left


def _accuracy(report: Report, marks: Marks) -> list[Line]:
    lines = []
    for row in digest.accuracies(report)[-EVALUATIONS:]:
        text, style = f"{row.after:.2f} %", "bold"
        if row.before is not None:
            change = row.after - row.before
            text = f"{row.before:.2f} % {marks.arrow} {row.after:.2f} %  ({change:+.2f} points)"
            style = f"bold {_grade(change, -1, -3)}"
        lines.append(_labelled(row.metric, text, style, f"  {row.samples:,} samples, {row.data}"))
    return lines


def _totals(s: Summary, marks: Marks) -> list[Line]:
    """The numbers people want first; what was not measured is left out."""
    lines = []
    if s.get("agreement") is not None:
        style = f"bold {_grade(s['agreement'], 0.95, 0.9)}"
        kl = number(s.get("kl"), "{:.5f}", missing="-")
        rest = f"  like the float model, {s['held_out']:,} held-out; KL {kl}"
        lines.append(_labelled("agreement", number(s["agreement"], "{:.2f} %", 100), style, rest))
    lines += [_memory(name, change, marks) for name, change in digest.memory(s).items()]
    if s.get("state_energy") is not None:
        rest = _words(s.get("state_words"), marks)
        lines.append(_labelled("state energy", number(s["state_energy"], "{:.3f}"), rest=rest))
    return [*lines, *_in_pairs(list(_short_totals(s, marks)))]


def _memory(name: str, change: digest.Change, marks: Marks) -> Line:
    filled = bar(change.after / change.before, MEMORY_BAR, marks)
    text = f"{size(change.before)} {marks.arrow} {size(change.after)}"
    times = smaller(*change)
    factor = "" if times is None else f"{times.replace('×', marks.times)} smaller"
    line = _labelled(name, f"{text:<24}", "bold", f"{factor:>14}{GAP}")
    return [*line, (filled, "cyan"), (marks.rest * (MEMORY_BAR - len(filled)), "dim")]


def _short_totals(s: Summary, marks: Marks) -> Iterator[Line]:
    """One value each, two of them on a line."""

    def change(pair: BeforeAfter | Counts, pattern: str, factor: float = 1.0) -> str:
        before, after = (number(pair[k], pattern, factor, missing="-") for k in ("before", "after"))
        return f"{before} {marks.arrow} {after}"

    if s.get("average_bits"):  # 0: nothing is in the budget
        rest = f" (all states {number(s.get('average_bits_all'), '{:.3f}', missing='-')})"
        yield _labelled("average bits", number(s["average_bits"], "{:.3f}"), rest=rest)
    if (flips := s.get("flip_rate")) is not None:
        style = f"bold {_grade(flips, 0.05, 0.1)}"
        yield _labelled("spike flips", number(flips, "{:.3f} %", 100), style)
    if s.get("saturation") is not None:
        yield _labelled("saturated states", number(s["saturation"], "{:.3f} %"))
    if s.get("silent_channels"):
        silent = s["silent_channels"]
        worse = (silent["after"] - silent["before"]) / max(1, s["channels"])
        style = f"bold {_grade(worse, 0.0, 0.01)}"
        yield _labelled("silent channels", change(silent, "{:.0f}"), style, f" of {s['channels']:,}")
    if s.get("firing_rate"):
        yield _labelled("firing rate", change(s["firing_rate"], "{:.4f}"))
    if s.get("energy_pj"):
        yield _labelled("operations", f"{change(s['energy_pj'], '{:.4g}', 1e-6)} uJ")
    if digest.beside_weights(s):
        yield _labelled("scales, biases", size(digest.beside_weights(s)))
    if s.get("stream_bytes"):
        yield _labelled("streams (int16)", size(s["stream_bytes"]))
    if (halves := s.get("sensitivity")) is not None:  # MPBA's g_c
        rest = f" ({number(halves['within_layers'], '{:.2f}', missing='-')} inside layers)"
        yield _labelled("split-half of g", number(halves["overall"], "{:.2f}", missing="-"), rest=rest)
    if (noise := s.get("noise_floor")) is not None:  # the float model with 0.01 % of weight noise
        kl = number(noise["kl"], "{:.5f}", missing="-")
        yield _labelled("noise alone", number(noise["agreement"], "{:.2f} %", 100), rest=f" (KL {kl})")


def _neurobench(s: Summary, marks: Marks) -> Iterator[Line]:
    """Operations of a sample and sparsities, as NeuroBench counts them."""
    if (found := s.get("neurobench")) is None:  # of an older version
        return
    b, a = found["before"], found["after"]
    acs = f"{many(b['effective_acs'])} {marks.arrow} {many(a['effective_acs'])} ACs"
    macs = f"{many(a['effective_macs'])} MACs of {many(a['dense'])}"
    zeros = (number(a[k], "{:.1f}", 100, "-") for k in ("activation_sparsity", "connection_sparsity"))
    rest = "; zero {} % spikes, {} % weights".format(*zeros)
    yield _labelled("NeuroBench", f"{acs}, {macs}", rest=rest)


def _frontier(report: Report, everything: bool) -> list[Line]:
    """What a search for a goal tried, the smallest first; the neighbours of the chosen one, or all."""
    found = report.get("figures", {}).get("frontier")
    if not found or not found["rows"]:
        return []
    rows = sorted(found["rows"], key=lambda r: r["bytes"])
    place = next((i for i, r in enumerate(rows) if r["chosen"]), 0)
    first = 0 if everything else max(0, min(place - TRIED // 2, len(rows) - TRIED))
    shown = rows if everything else rows[first : first + TRIED]
    head, *body = aligned([frontier.TITLES, *map(frontier.cells, shown)], 1)
    lines: list[Line] = [[(frontier.heading(found), "dim")], [(GAP.join(head), "dim")]]
    lines += [[(GAP.join(b), "bold" if r["chosen"] else "")] for b, r in zip(body, shown, strict=True)]
    if len(shown) < len(rows):
        lines.append([(f"{len(shown)} of {len(rows)}; `ptq4snn summary --all` shows all", "dim")])
    return lines


def _words(words: StateWords | None, marks: Marks) -> str:
    if not words:
        return " of M32"
    return f" of M32 ({words['m32']:,} {marks.arrow} {words['packed']:,} SRAM words a step)"


def _stages(neurons: Sequence[Neuron], everything: bool, marks: Marks) -> list[Line]:
    """A bar for each part of the network: which share of its resident states has how many bits."""
    stages = digest.composition(neurons)
    shown = list(stages)
    if not everything and len(stages) > STAGES:
        largest = sorted(stages, key=lambda s: -sum(stages[s].values()))[:STAGES]
        shown = [s for s in stages if s in largest]
    if not shown:
        return []
    some = "" if len(shown) == len(stages) else f" ({len(shown)} of {len(stages)} stages, the largest)"
    room = min(STAGE_NAME, max(map(len, shown)))
    lines: list[Line] = [[(f"bits of the resident states{some}", "dim")]]
    for stage in shown:
        widths = stages[stage]
        total = sum(widths.values())
        name = f"{shortened(stage, room):<{room}}  "
        shares = ", ".join(f"{b}-bit {100 * n / total:.0f} %" for b, n in widths.items())
        lines.append([(name, ""), *_stacked(widths, marks), (f"  {shares}", "")])
    return lines


def _stacked(widths: dict[int, int], marks: Marks) -> Line:
    """STAGE_BAR characters, each width with as many as its share."""
    total, seen, spans = sum(widths.values()), 0, []
    for b, n in widths.items():
        start, seen = round(STAGE_BAR * seen / total), seen + n
        length = round(STAGE_BAR * seen / total) - start
        shade, hue = next((look for most, look in SHADES.items() if b <= most), ("█", "red"))
        spans.append(((shade if marks.unicode else WIDE.get(b, str(b)[:1])) * length, hue))
    return spans


def _layers(neurons: Sequence[Neuron], most: int, marks: Marks, width: int) -> list[Line]:
    """One line a layer, at most so many: those that tell most, in the order of the network."""
    if not neurons:
        return []
    shown, why = digest.most_telling(neurons, most)
    columns = _columns(shown, marks)
    if width < WIDTH:
        columns = [c for c in columns if c[0] not in ("state", "")]
    titles, cells = [t for t, _, _ in columns], zip(*(c for _, c, _ in columns), strict=True)
    head, *body = aligned([titles, *cells], 1, width)
    lines: list[Line] = [[(GAP.join(head), "dim")], [(marks.rule * len(GAP.join(head)), "dim")]]
    for i, row in enumerate(body):
        spans = [(cell, styles[i]) for cell, (_, _, styles) in zip(row, columns, strict=True)]
        lines.append([span for s in spans for span in (s, (GAP, ""))][:-1])
    if why:
        how = "`ptq4snn summary --all` shows all"
        lines.append([(f"{len(shown)} of {len(neurons)} layers, those with most {why}; {how}", "dim")])
    return lines


def _columns(neurons: Sequence[Neuron], marks: Marks) -> list[tuple[str, list[str], list[str]]]:
    """Title, cells and their styles; columns that have nothing to tell are left out."""
    flips = [n.get("flip_rate") for n in neurons]
    graded = ["" if f is None else _grade(f, 0.05, 0.1) for f in flips]
    top = max((f for f in flips if f is not None), default=0.0) or 1.0
    bars = [bar((f or 0.0) / top, FLIP_BAR, marks).ljust(FLIP_BAR) for f in flips]
    curves = [_curve(_flips_over_time(n), marks) for n in neurons]
    none = [""] * len(neurons)
    columns = [
        ("layer", [n["name"] for n in neurons], none),
        ("state", [digest.shape(n) for n in neurons], none),
        ("bits", [f"{digest.average_bits(n):.2f}" for n in neurons], none),
        ("k", [digest.exponents(n) for n in neurons], none),
        ("sat. %", [number(n.get("saturation"), missing="-") for n in neurons], none),
        ("flips %", [number(f, factor=100, missing="-") for f in flips], graded),
        ("", bars, graded),
        ("over T", [c.ljust(max(map(len, curves))) for c in curves], none),
        ("firing rate", [_rates(n.get("firing_rate"), marks) for n in neurons], none),
    ]
    return [c for c in columns if any(cell.strip(" -") for cell in c[1])]


def _flips_over_time(n: Neuron) -> Sequence[float | None]:
    seen = n.get("over_time")
    return (seen.get("flip_rate") or []) if seen else []


def _rates(rates: BeforeAfter | None, marks: Marks) -> str:
    if not rates:
        return "-"
    before, after = (number(rates[k], "{:.3f}", missing="-") for k in ("before", "after"))
    return f"{before} {marks.arrow} {after}"


def _curve(values: Sequence[float | None], marks: Marks) -> str:
    """At most CURVE characters, each the mean of as many steps; nothing to see in a single step."""
    if len(values) < 2:
        return ""
    count = min(CURVE, len(values))
    cuts = [len(values) * i // count for i in range(count + 1)]
    parts = [[v for v in values[a:b] if v is not None] for a, b in pairwise(cuts)]
    return sparkline([sum(p) / len(p) if p else None for p in parts], marks)


def _note(text: str) -> Line:
    return [(text, "bold red" if text.startswith("WARNING") else "dim")]

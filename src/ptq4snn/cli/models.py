"""`ptq4snn models`: the built-in models in one table, or one of them in full."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from ptq4snn.cli.counts import Counts, known_counts
from ptq4snn.extras import is_there
from ptq4snn.models.zoo import MODELS, Entry, find

__all__ = ["run"]

Row = dict[str, Any]
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def run(args: argparse.Namespace) -> None:
    if args.name is not None:
        name, entry = find(args.name)
        found = details(name, entry)
        print(json.dumps(found, indent=2) if args.json else "\n".join(sentences(found)))
        return
    rows = [row(name, entry) for name, entry in MODELS.items()]
    if args.json:
        print(json.dumps(rows, indent=2))
    elif sys.stdout.isatty() and is_there("rich"):
        print_rich(rows)
        for note in notes(rows):
            print(note)
    else:
        print("\n".join([*lines(rows), *notes(rows)]))


def row(name: str, entry: Entry) -> Row:
    """What a model is and how large; counts are of one sample and one time step."""
    counts = known_counts().get(name)
    return {
        "name": name,
        "data": entry.data,
        "input": list(entry.input),
        "T": entry.steps,
        **(dict.fromkeys(Counts.__dataclass_fields__) if counts is None else asdict(counts)),
        "score": entry.score(),
        "weights": None if (found := entry.weights()) is None else str(found),
        "elsewhere": entry.elsewhere() if entry.checkpoint and found is None else None,
    }


def details(name: str, entry: Entry) -> Row:
    return {
        **row(name, entry),
        "class": entry.build.__name__,
        "settings": {k: plain(v) for k, v in entry.settings.items()},
        "preprocessing": {k: v for k, v in asdict(entry.preprocessing).items() if v is not None},
        "official": None if entry.official is None else asdict(entry.official),
    }


def plain(value: Any) -> Any:
    """A setting as JSON: neuron classes by name, with what is set in them."""
    if isinstance(value, partial):
        return f"{value.func.__name__}({', '.join(f'{k}={v}' for k, v in value.keywords.items())})"
    return value.__name__ if isinstance(value, type) else value


# title, text
COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("name", lambda r: str(r["name"])),
    ("data", lambda r: str(r["data"])),
    ("input", lambda r: "x".join(map(str, r["input"]))),
    ("T", lambda r: str(r["T"])),
    ("parameters", lambda r: short(r["parameters"])),
    ("pair/stream/bare", lambda r: kinds(r)),
    ("states", lambda r: short(r["states"])),
    ("MACs/step", lambda r: short(r["macs"])),
    ("trained %", lambda r: "-" if r["score"] is None else f"{r['score']:.2f}"),
)
LEFT = 3  # columns of text; the others are numbers


def short(count: int | None) -> str:
    """Three digits and a unit."""
    if count is None:
        return "-"
    unit, letter = next(((u, x) for u, x in UNITS if count >= u), (1, ""))
    value = count / unit
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}{letter}"


def kinds(r: Row) -> str:
    return "-" if r["pair"] is None else f"{r['pair']}/{r['stream']}/{r['bare']}"


def lines(rows: Iterable[Row]) -> list[str]:
    """The table as plain text."""
    table = [[title for title, _ in COLUMNS], *([text(r) for _, text in COLUMNS] for r in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    out = []
    for texts in table:
        cells = (
            t.ljust(w) if i < LEFT else t.rjust(w) for i, (t, w) in enumerate(zip(texts, widths, strict=True))
        )
        out.append("  ".join(cells).rstrip())
    return [out[0], "-" * len(out[0]), *out[1:]]


def notes(rows: Iterable[Row]) -> list[str]:
    """Which weights are not here, and where they are."""
    missing = [r["name"] for r in rows if r["elsewhere"]]
    text = "are not in this installation: `ptq4snn models NAME` tells where they are"
    return [f"trained weights of {', '.join(missing)} {text}"] if missing else []


def print_rich(rows: Iterable[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, (title, _) in enumerate(COLUMNS):
        table.add_column(title, justify="left" if i < LEFT else "right", no_wrap=True)
    for r in rows:
        table.add_row(*(text(r) for _, text in COLUMNS))
    Console().print(table)


def sentences(r: Row) -> list[str]:
    """One model for a person: every fact on a line of its own, then how to get weights into it."""
    facts: list[tuple[str, str]] = [
        ("data", str(r["data"])),
        ("input", " x ".join(map(str, r["input"])) + f", T = {r['T']}"),
        ("preprocessing", listed(r["preprocessing"])),
        ("built by", f"{r['class']}({listed(r['settings'], '')})"),
    ]
    if r["pair"] is not None:
        neurons = r["pair"] + r["stream"] + r["bare"]
        facts += [
            ("parameters", f"{r['parameters']:,}"),
            ("neurons", f"{neurons} ({r['pair']} pair, {r['stream']} stream, {r['bare']} bare)"),
            ("states", f"{r['states']:,} values in {r['channels']:,} channels, one sample"),
            ("MACs per step", f"{r['macs']:,}, and {r['attention_macs']:,} of attention"),
        ]
    facts += weights(r)
    return [str(r["name"]), *(f"  {title:<14} {text}" for title, text in facts)]


def listed(values: dict[str, Any], nothing: str = "the data set's own") -> str:
    return ", ".join(f"{k}={v!r}" for k, v in values.items()) or nothing


def weights(r: Row) -> list[tuple[str, str]]:
    facts = []
    if r["score"] is not None:
        facts.append(("trained", f"{r['score']:.2f} %; these weights are used without --checkpoint"))
    if r["elsewhere"]:
        facts.append(("trained", f"not in this installation: {r['elsewhere']}"))
    if (official := r["official"]) is not None:
        reported = "" if official["accuracy"] is None else f", {official['accuracy']} % reported"
        facts.append(("authors", f"{official['repository']}{reported}"))
        file = official["file"] or "none published; files saved by the authors' program fit"
        facts.append(("weights", file))
        if official["note"]:
            facts.append(("note", official["note"]))
    facts.append(("load a file", f"--model {r['name']} --checkpoint FILE"))
    return facts

"""One screen: it fits, it chooses the right layers, its numbers are the report's, and colour adds nothing."""

from __future__ import annotations

import copy
import io
import re
import sys
from typing import Any

import pytest
from report.samples import report

from ptq4snn.report.digest import composition, memory
from ptq4snn.report.screen import LAYERS, STAGES, WIDTH, screen
from ptq4snn.report.terminal import plain, show, show_lines
from ptq4snn.report.text import Marks, aligned, bar, sparkline, table

Data = Any  # a Report, which tests break in all ways
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def text(data: Data, **options: Any) -> str:
    return plain(screen(data, **options))


def large() -> Data:
    """As much of everything as a large network has."""
    data = report(neurons=61, steps=10)
    for i, n in enumerate(data["neurons"]):
        n["stage"] = f"encoder.stage{i // 5}"
    data["neurons"][3] |= {"carries_state": False, "zero_state": True}
    data["neurons"][60] |= {"readout": True, "flip_rate": None, "saturation": None, "in_budget": False}
    data["neurons"][60]["bits"] = {"16": data["neurons"][60]["channels"]}
    data["silent"] = {"before": None, "after": "stage2.20.lif", "lost": ["stage2.20.lif"]}
    data["summary"]["stream_bytes"] = 9000
    data["evaluations"] = [
        {
            "data": f"imagenet:/data/{i}", "samples": 50_000, "limit": None, "task": "classification",
            "float": {"accuracy": 77.07, "accuracy_top5": 93.0}, "quantized": {"accuracy": 76.5 - i},
        }
        for i in range(4)
    ]  # fmt: skip
    return data


@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("width", [80, 100])
def test_fits_one_screen(unicode: bool, width: int) -> None:
    for data in (large(), report(), report(neurons=1, steps=1)):
        lines = text(data, marks=Marks(unicode), width=width).splitlines()
        assert len(lines) <= 43 and max(map(len, lines)) <= width
        assert unicode or "\n".join(lines).isascii()


def shown(lines: list[str], names: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in names]


def test_layers_with_most_flips_in_the_order_of_the_network() -> None:
    data = large()
    del data["figures"]["frontier"]  # which takes the place of some
    names = [n["name"] for n in data["neurons"]]
    lines = text(data).splitlines()
    worst = sorted(data["neurons"], key=lambda n: n["flip_rate"] or 0.0)[-LAYERS:]
    assert shown(lines, names) == [n for n in names if n in {w["name"] for w in worst}]
    assert any(line.startswith(f"{LAYERS} of 61 layers, those with most flips") for line in lines)
    every = text(data, everything=True).splitlines()
    assert shown(every, names) == names and "--all" not in "\n".join(every)


def test_numbers_are_those_of_the_report() -> None:
    data = large()
    s, found = data["summary"], text(data)
    for expected in (
        "W4/M4", "coupling bridge", "allocation mpba (beta 0.8, P97)", "rounding brecq", "T = 10",
        "accuracy          77.07 % -> 73.50 %  (-3.57 points)  50,000 samples, imagenet:/data/3",
        "agreement         96.09 %  like the float model, 128 held-out; KL 0.00412",
        "average bits      4.000 (all states 5.282)",
        f"spike flips      {100 * s['flip_rate']:.3f} %", "saturated states  0.612 %",
        "silent channels  11 -> 13 of 4,800", "firing rate       0.1420 -> 0.1431",
        "operations       110 -> 112 uJ", "streams (int16)  8.79 KiB", "scales, biases    37.1 KiB",
        "state energy      0.177 of M32 (581,632 -> 102,905 SRAM words a step)",
        "carries no state: stage1.3.lif", "16 bits (first layer): stage1.0.lif",
            "16 bits (its membrane is the output): stage4.60.lif",
        "WARNING: silent after quantization, first at stage2.20.lif; give it more bits",
    ):  # fmt: skip
        assert expected in found, expected
    assert "imagenet:/data/2" not in found  # the last one is shown
    n = max(data["neurons"], key=lambda n: n["flip_rate"] or 0.0)
    line = next(line for line in found.splitlines() if line.startswith(n["name"]))
    rates = n["firing_rate"]
    assert line.split()[1:4] == ["64x32x32", "4.00", "1..6"]
    assert line.split()[4:6] == [f"{n['saturation']:.2f}", f"{100 * n['flip_rate']:.2f}"]
    assert line.endswith(f"{rates['before']:.3f} -> {rates['after']:.3f}")


def test_memory_counts_what_lies_beside_the_numbers() -> None:
    data = report()
    s = data["summary"]
    found = memory(s)
    assert (found["states"].before, found["states"].after) == (2_457_600, 411_620)
    assert (found["weights"].before, found["weights"].after) == (44_695_552, 5_615_000)
    lines = {line.split()[0]: line for line in text(data).splitlines() if line}
    assert "2.34 MiB -> 402 KiB" in lines["states"] and "6.0x smaller" in lines["states"]
    assert "42.6 MiB -> 5.35 MiB" in lines["weights"] and "8.0x smaller" in lines["weights"]
    assert lines["states"].count("#") == round(20 * 411_620 / 2_457_600)
    s["state_bytes"] |= {"float": 0, "packed": 0}  # one step, so nothing to keep
    assert memory(s).keys() == {"weights"} and "inf" not in text(data)


def test_bits_by_stage() -> None:
    data = large()
    stages = composition(data["neurons"])
    total: dict[str, dict[int, int]] = {}
    for n in data["neurons"]:
        for b, channels in n["bits"].items():
            for _ in range(channels if n["carries_state"] else 0):
                at = total.setdefault(n["stage"], {})
                at[int(b)] = at.get(int(b), 0) + n["elements"]
    assert stages == total and list(stages) == [f"encoder.stage{i}" for i in range(13)]
    lines = [line for line in text(data).splitlines() if line.startswith("encoder.stage")]
    assert len(lines) == STAGES and f"({STAGES} of 13 stages, the largest)" in text(data)
    name, bits, *shares = lines[1].split(maxsplit=2)
    assert len(bits) == 40 and " ".join(shares) == "2-bit 19 %, 4-bit 72 %, 8-bit 9 %"
    for b, n in stages[name].items():
        assert abs(bits.count(str(b)) - 40 * n / sum(stages[name].values())) < 1
    every = text(data, everything=True).splitlines()
    assert sum(line.startswith("encoder.stage") for line in every) == 13


def test_flips_over_time() -> None:
    data = report(neurons=2, steps=4)
    data["neurons"][0]["over_time"]["flip_rate"] = [0.0, 0.01, None, 0.02]
    lines = text(data, marks=Marks(unicode=True)).splitlines()
    assert "▁▅ █" in next(line for line in lines if line.startswith("stage1.0.lif"))
    assert "over T" not in text(report(steps=1))  # one step is no curve
    long = report(neurons=1, steps=300)
    long["neurons"][0]["over_time"]["flip_rate"] = [0.0] * 150 + [0.5] * 150
    assert "▁▁▁▁████" in text(long, marks=Marks(unicode=True))


NEW = ("version", "arithmetic", "steps", "task", "state_words")


def test_an_older_report_tells_what_it_knows() -> None:
    data = large()
    for key in ("figures", "evaluations"):
        del data[key]
    for key in NEW:
        del data["summary"][key]
    for n in data["neurons"]:
        for key in ("stage", "over_time", "average_bits"):
            del n[key]
    found = text(data)
    assert "agreement         96.09 %" in found and "all layers" in found and "over T" not in found
    assert "state energy      0.177 of M32\n" in found and "T = " not in found


def test_a_network_without_a_budget_has_no_average() -> None:
    data = report()
    data["summary"] |= {"average_bits": 0.0, "average_bits_all": 0.0}
    assert "average bits" not in text(data)


def test_what_was_not_measured_is_left_out() -> None:
    data = report(neurons=20)
    measured = ("saturation", "flip_rate", "firing_rate", "over_time")
    known: dict[str, Any] = {
        "summary": {k: data["summary"][k] for k in ("recipe", "average_bits", "average_bits_all", "steps")},
        "neurons": [{k: v for k, v in n.items() if k not in measured} for n in data["neurons"]],
    }
    known["neurons"][7] |= {"elements": 1}
    found = text(known)
    for word in ("agreement", "flips %", "firing rate", "nan", "None"):
        assert word not in found
    assert "13 of 20 layers, those with most states" in found
    assert "stage2.7.lif" not in found and "stage1.0.lif" in found


def test_a_name_cannot_steer_the_terminal() -> None:
    data = report(hostile="\x1b[2J\r")
    data["neurons"][0]["stage"] = "a\x07b"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text(data))
    assert "a?b" in text(data) and "lif?[2J?" in text(data)


class Terminal(io.TextIOWrapper):
    """A stdout that says whether it is a terminal."""

    def __init__(self, tty: bool, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty

    def written(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]  # a BytesIO


def printed(
    monkeypatch: pytest.MonkeyPatch, data: Data, tty: bool = True, encoding: str = "utf-8", **env: str
) -> str:
    out = Terminal(tty, encoding)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "120", **env}.items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", out)
        show(data)
    return out.written()


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = large()
    rich = f"{text(data, marks=Marks(unicode=True))}\n"
    coloured = printed(monkeypatch, data)
    stripped = "\n".join(line.rstrip() for line in ESCAPE.sub("", coloured).splitlines())
    assert coloured != stripped and f"{stripped}\n" == rich  # colour is an addition to the same text
    assert printed(monkeypatch, data, NO_COLOR="1") == rich
    assert printed(monkeypatch, data, TERM="dumb") == rich
    assert printed(monkeypatch, data, tty=False) == f"{text(data)}\n"
    assert ESCAPE.sub("", printed(monkeypatch, data, encoding="ascii")).isascii()


def test_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    data = large()
    for columns, most in (("80", 80), ("40", 80), ("90", 90), ("200", WIDTH)):
        lines = printed(monkeypatch, data, NO_COLOR="1", COLUMNS=columns).splitlines()
        assert max(map(len, lines)) <= most
        assert any("stage4.60.lif" in line for line in lines)  # in a note
    assert "64x32x32" not in printed(monkeypatch, data, COLUMNS="80")


def test_what_stdout_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lif?" in printed(monkeypatch, report(hostile="é"), tty=False, encoding="ascii")
    out = Terminal(False, "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    show_lines(["é\x1b[31m", "b"])
    monkeypatch.undo()
    assert out.written() == "??[31m\nb\n"


def test_bars_and_curves() -> None:
    for unicode, steps in ((False, 1), (True, 8)):
        marks = Marks(unicode)
        for i in range(101):
            drawn = bar(i / 100, 10, marks)
            units = sum(marks.parts.index(c) for c in drawn)
            assert len(drawn) <= 10 and (units > 0) == (i > 0)
            assert abs(units - 10 * steps * i / 100) <= max(0.5, 1 if i < 10 else 0)
    assert bar(-1, 10) == "" and bar(7, 10) == "#" * 10
    assert sparkline([0, 5, 10]) == " +@" or sparkline([0, 5, 10]) == " =@"
    assert sparkline([]) == "" and sparkline([0.0, None], Marks(True)) == "▁ "


def test_tables() -> None:
    lines = table(("name", "x"), [["a" * 200, "1"], ["b", "10"]], left=1)
    assert max(map(len, lines)) <= 110 and lines[2].startswith("..a") and lines[3].split() == ["b", "10"]
    assert set(lines[1]) == {"-"} and len(lines[1]) == len(lines[2])
    assert aligned([["a", "b"], ["ccc", "d"]], left=2) == [["a  ", "b"], ["ccc", "d"]]


def test_an_empty_report_is_no_crash() -> None:
    for part in ("summary", "neurons"):
        data = copy.deepcopy(report())
        del data[part]
        assert text(data)

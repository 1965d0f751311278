"""`ptq4snn check`: exit codes, JSON, targets of one's own, mistakes in one sentence, no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.bundles import Made, make, without_torch
from targets.nets import Rich, bundle

from ptq4snn import extras
from ptq4snn.export.c99.export import generate
from ptq4snn.report.deployment import deployment_lines
from ptq4snn.targets.ways_out import ways_out

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("check"), still=True)


def test_exit_codes_and_lines(cli: Cli, made: Made) -> None:
    code, out, err = cli("check", str(made.bundle), "--target", "spinnaker2")
    assert (code, err) == (0, "") and out.startswith("SpiNNaker2: fits, ")
    assert "BROKEN" not in out and "note: " in out
    code, out, err = cli("check", str(made.bundle), "--target", "Spiker+")
    assert (code, err) == (1, "") and out.startswith("Spiker+: does not fit, ")
    assert "BROKEN  conv  not fully connected: a convolution, or shared by positions\n" in out
    assert "BROKEN  n1    a state of 16 bits, 10 at most\n" in out
    assert (
        '    [overrides."n1"]\n    membrane = 8\n' in out and "no recipe mends:\n    'conv', 'deep': " in out
    )


def test_json(cli: Cli, made: Made) -> None:
    code, out, _ = cli("check", str(made.bundle), "--target", "spiker+", "--json")
    found = json.loads(out)
    assert code == 1 and set(found) == {"target", "fits", "constraints", "recipe", "beyond", "note"}
    assert found["fits"] is False and found["target"] == "Spiker+"
    state = next(c for c in found["constraints"] if (c["constraint"], c["place"]) == ("state_bits", "n1"))
    assert state == {
        "constraint": "state_bits", "place": "n1", "met": False, "text": "a state of 16 bits, 10 at most",
    }  # fmt: skip


def test_a_target_of_ones_own(cli: Cli, made: Made, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'weight_bits = [4, 8]\nstate_bits = 16\nresets = ["hard"]\nlayers = 3\nnote = "by hand"\n'
    )
    code, out, _ = cli("check", str(made.bundle), "--target", str(file))
    assert code == 0 and out.startswith("mine: fits, ") and out.endswith("note: by hand\n")
    file.write_text('name = "Mine"\nresets = ["soft", "none"]\nleak = "none"\ncores = [[900, 900]]\n')
    code, out, _ = cli("check", str(made.bundle), "--target", str(file))
    assert code == 1 and "n1    resets to rest, only by subtraction or never is possible" in out
    assert "train with a reset that Mine has" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("weight_bits = ", "is not TOML"),
        ("weight_bit = 8", "did you mean 'weight_bits'?"),
        ("weight_bits = true", "weight_bits must be an integer from 2 to 64, not True"),
        ("state_bits = [8, 4]", "the most of state_bits must be an integer from 8 to 64, not 4"),
        ("state_bits = [8]", "state_bits must be a number of bits or [least, most], not [8]"),
        ('leak = "powers"', "leak must be one of none, power, 12-bit, not 'powers'; did you mean 'power'?"),
        ('without = "attention"', "without must be a list of recurrence, "),
        ('without = ["attentoin"]', "did you mean 'attention'?"),
        ("cores = [[1]]", "cores must be a list of up to 256 times [weights, neurons], not [[1]]"),
        ("cores = [[1, -1]]", "neurons of cores must be an integer from 0 to"),
        ('note = "a\\nb"', "note must be one line of text"),
        ('name = "nothing"', "has no constraint: give one of weight_bits, state_bits, "),
    ],
)
def test_a_bad_target_is_one_sentence(cli: Cli, made: Made, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    code, out, err = cli("check", str(made.bundle), "--target", str(file))
    assert code == 2 and out == "" and err.count("\n") == 1
    assert said in err and "bad.toml" in err


def test_mistakes(cli: Cli, made: Made, tmp_path: Path) -> None:
    file = str(made.bundle)
    for argv, said in (
        ((file, "--target", "xilo"), "there is no target 'xilo': did you mean 'xylo'?"),
        ((file, "--target", "microcontroller"), "give --flash BYTES, --ram BYTES, or both"),
        ((file, "--target", "xylo", "--ram", "1"), "are for --target microcontroller"),
        ((file, "--target", str(tmp_path / "none.toml")), "cannot read the target "),
        ((file,), "--target"),
        ((str(tmp_path / "none.ptq"), "--target", "xylo"), "none.ptq"),
    ):
        code, out, err = cli("check", *argv)
        assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_the_summary_names_ways_out_and_targets(cli: Cli, made: Made, tmp_path: Path) -> None:
    code, out, err = cli("summary", str(made.bundle))
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out[out.index("\nexport\n") :].splitlines() if line}
    figures = generate(made.bundle, "m").figures
    assert lines["c"] == f"  c     yes: about {figures.flash:,} bytes of flash, {figures.ram:,} of RAM"
    assert lines["fits"] == "fits   Loihi 2, SpiNNaker2"
    assert lines["not"] == "not    Xylo, XyloAudio 3, Speck, hls4ml, Spiker+"
    for way, module in (("onnx", "onnx"), ("nir", "nir")):
        yes = extras.is_there(module)
        assert lines[way] == f"  {way:<5} yes" if yes else f'pip install "ptq4snn[{way}]"' in lines[way]
    assert cli("summary", f"{made.bundle}.report.json")[1] == out


def test_what_no_exporter_takes(tmp_path: Path) -> None:
    """Attention and a maximum are nothing for NIR; the reason stands beside it."""
    found = ways_out(bundle(tmp_path / "m.ptq", Rich(), "fast+w4m4", 2, 6, 6))
    assert found is not None
    nir = next(way for way in found.exports if way.name == "nir")
    assert not nir.works and "nir" in nir.text.lower()
    assert any(line.startswith("  nir   no: ") for line in deployment_lines(found, "m.ptq"))
    (tmp_path / "x.ptq").write_bytes(b"x")
    assert ways_out(tmp_path / "x.ptq") is None


def test_the_page_names_ways_out_and_targets(cli: Cli, made: Made, tmp_path: Path) -> None:
    """Made anew beside the bundle, and without it where it is not there."""
    page = tmp_path / "page.html"
    assert cli("report", str(made.bundle), "--out", str(page))[0] == 0
    text = page.read_text(encoding="utf-8")
    section = text[text.index('<section id="deploy"') :].split("</section>")[0]
    figures = generate(made.bundle, "m").figures
    assert f"about {figures.flash:,} bytes of flash" in section and '<a href="#deploy">' in text
    rows = dict(re.findall(r"<th scope=\"row\">([^<]+)</th>\s*<td>(yes|no)</td>", section))
    assert rows.items() >= {"C99": "yes", "Loihi 2": "yes", "SpiNNaker2": "yes", "Xylo": "no"}.items()
    alone = tmp_path / "m.ptq.report.json"
    alone.write_bytes(Path(f"{made.bundle}.report.json").read_bytes())
    assert cli("report", str(alone))[0] == 0
    assert 'id="deploy"' not in (tmp_path / "m.ptq.report.html").read_text(encoding="utf-8")


def test_it_needs_no_torch(made: Made) -> None:
    done = without_torch(
        "check", str(made.bundle), "--target", "microcontroller", "--flash", "9", "--ram", "9"
    )
    assert done.returncode == 1 and done.stdout.startswith("microcontroller: does not fit"), done.stderr

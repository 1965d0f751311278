"""`ptq4snn run`: the bits of the simulation, whole or in steps, and one sentence for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli.bundles import Made, make, without_torch

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("still"), still=True)


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("frames"), still=False)


@pytest.fixture(params=["images", "sequences"])
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("options", [[], ["--stream"], ["--kernels", "numpy"], ["--threads", "2"]])
def test_outputs_are_those_of_the_simulation(
    made: Made, options: list[str], cli: Cli, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    code, text, _ = cli("run", str(made.bundle), str(made.input), "-o", str(out), *options)
    assert (code, text) == (0, f"wrote {out}: 6x3\n")
    got = np.load(out)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, made.logits)


def test_classes_are_printed_best_first(images: Made, cli: Cli) -> None:
    code, text, _ = cli("run", str(images.bundle), str(images.input), "--top", "2")
    assert code == 0
    order = np.argsort(-images.logits, axis=1, kind="stable")
    for i, line in enumerate(text.splitlines()):
        first, second = order[i, 0], order[i, 1]
        assert line.startswith(f"sample {i}: class {first} (") and f", class {second} (" in line
    found = json.loads(cli("run", str(images.bundle), str(images.input), "--json")[1])
    assert [row[0]["class"] for row in found["classes"]] == order[:, 0].tolist()
    assert found["outputs"] == [[6, 3]]


def test_a_session_goes_on_from_its_file(sequences: Made, cli: Cli, tmp_path: Path) -> None:
    halves = (sequences.x[:, :3], sequences.x[:, 3:])
    for i, half in enumerate(halves):
        np.save(tmp_path / f"{i}.npy", half)
    state, out = tmp_path / "state", tmp_path / "out.npy"
    bundle = str(sequences.bundle)
    first = cli("run", bundle, str(tmp_path / "0.npy"), "--stream", "--save-state", str(state))
    assert first[0] == 0 and state.exists()
    last = cli("run", bundle, str(tmp_path / "1.npy"), "--stream", "--state", str(state), "-o", str(out))
    assert last[0] == 0
    np.testing.assert_array_equal(np.load(out), sequences.logits)
    alone = cli("run", bundle, str(tmp_path / "1.npy"), "--stream", "-o", str(out))
    assert alone[0] == 0 and not np.array_equal(np.load(out), sequences.logits)  # the state does matter


def test_steps_of_a_still_image(images: Made, cli: Cli, tmp_path: Path) -> None:
    outs = []
    for options in (["--steps", "7"], ["--steps", "7", "--stream"], []):
        out = tmp_path / "out.npy"
        assert cli("run", str(images.bundle), str(images.input), "-o", str(out), *options)[0] == 0
        outs.append(np.load(out))
    np.testing.assert_array_equal(outs[0], outs[1])
    assert not np.array_equal(outs[0], outs[2])


def mistakes(folder: Path, made: Made) -> dict[str, list[str]]:
    """Arguments by what the message must say."""
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(folder / "words.npy", np.array(["a"]))
    np.save(folder / "small.npy", np.zeros((1, 2, 3, 3), np.float32))
    np.savez(folder / "several.npz", a=np.zeros(1), b=np.zeros(1))
    (folder / "text.npy").write_text("no array")
    bundle, x = str(made.bundle), str(made.input)
    return {
        "no.ptq": ["no.ptq", x],
        "no.npy": [bundle, str(folder / "no.npy")],
        "or not a .npy file of numbers": [bundle, str(folder / "objects.npy")],
        "text.npy is truncated or not a .npy file": [bundle, str(folder / "text.npy")],
        "not numbers": [bundle, str(folder / "words.npy")],
        "several.npz holds a, b but no x": [bundle, str(folder / "several.npz")],
        "[3, 3]": [bundle, str(folder / "small.npy")],
        "need --stream": [bundle, x, "--state", "s"],
        "there is no folder": [bundle, x, "-o", str(folder / "none" / "out.npy")],
        "is a folder": [bundle, x, "-o", str(folder)],
        "no kernels 'fast'": [bundle, x, "--kernels", "fast"],
        "no state of a session": [bundle, x, "--stream", "--state", bundle],
    }


def test_mistakes_are_one_sentence(images: Made, cli: Cli, tmp_path: Path) -> None:
    for message, arguments in mistakes(tmp_path, images).items():
        code, out, err = cli("run", *arguments)
        assert (code, out) == (2, ""), message
        assert err.startswith("ptq4snn: error: ") and err.count("\n") == 1
        assert message.replace("[3, 3]", "3, 3]") in err, (message, err)


def test_a_failure_leaves_the_old_file(images: Made, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    out.write_bytes(b"before")
    np.save(tmp_path / "small.npy", np.zeros((1, 2, 3, 3), np.float32))
    assert cli("run", str(images.bundle), str(tmp_path / "small.npy"), "-o", str(out))[0] == 2
    assert out.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 2


def test_without_torch(sequences: Made, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    done = without_torch("run", str(sequences.bundle), str(sequences.input), "-o", str(out))
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(out), sequences.logits)

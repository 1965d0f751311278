"""Names of a bundle are a stranger's text: any of it goes into all three exporters, and nothing changes but
comments and metadata."""

from __future__ import annotations

import functools
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.test_safety import EVIL, renamed
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from runtime.programs import random_model

from ptq4snn.export.c99.export import generate
from ptq4snn.export.c99.names import comment
from ptq4snn.network.plan import Plan
from ptq4snn.runtime.engine import is_causal
from ptq4snn.runtime.parameters import Model

PIECES = ("*/", "/*", "//", "\\\n", "??/", "#", '"', "\n", "\r", "\x00", "\ud800", "%s", "<", "&", "../", "'")
TEXTS = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(PIECES)), min_size=1, max_size=6).map("".join)


@functools.cache
def plain() -> Model:
    models = (random_model(seed, operations=5, work=1500) for seed in range(40))
    return next(m for m in models if is_causal(m.program))


def code(content: bytes) -> str:
    """Without comments, and each of these on one line of plain characters."""
    text = content.decode("ascii")
    for found in re.findall(r"/\*(.*?)\*/", text, re.S):
        assert "/*" not in found and "??" not in found and "\\" not in found
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


@functools.cache
def wanted_c() -> dict[str, str]:
    return {file: code(content) for file, content in generate(plain(), "net").files.items()}


@given(st.text(max_size=200))
@example("*/ int x; /*")
def test_comments_are_plain(text: str) -> None:
    found = comment(text)
    assert len(found) <= 60 and re.fullmatch(r"[A-Za-z0-9_. ()<>=+:-]*", found)


@examples(max_examples=40)
@given(TEXTS)
def test_any_name_in_c(text: str) -> None:
    found = generate(renamed(plain(), lambda name: f"{text}{name}{text}"), "net").files
    assert {file: code(content) for file, content in found.items()} == wanted_c()


@examples(max_examples=25)
@given(TEXTS)
def test_any_name_in_onnx(text: str) -> None:
    """Not a byte of the model changes: its names are numbers."""
    pytest.importorskip("onnx")
    from ptq4snn.export.onnx_form.export import onnx_model

    found = onnx_model(renamed(plain(), lambda name: f"{text}{name}{text}"), "scan")
    assert found.SerializeToString() == onnx_model(plain(), "scan").SerializeToString()


@functools.cache
def for_nir() -> tuple[Plan, Model]:
    from interchange.test_nir import DT, GRAPHS, samples

    from ptq4snn import from_nir
    from ptq4snn.pipeline import prepare, run
    from ptq4snn.recipe import Recipe
    from ptq4snn.runtime import model_of

    graph, recipe = GRAPHS["recurrent cuba"](), Recipe.parse("nearest+uniform+w4m4").replace(holdout=4)
    q = run(prepare(from_nir(graph, dt=DT, reset="zero"), samples(graph), recipe), recipe)
    assert q.program is not None
    return q.plan, model_of(q.program, q.plan, q.integers)


def renamed_plan(plan: Plan, text: str) -> Plan:
    def of(table: Any) -> Any:
        return {f"{text}{k}": replace(v, name=f"{text}{k}") for k, v in table.items()}

    return replace(plan, projections=of(plan.projections), neurons=of(plan.neurons))


def shape_of(graph: Any) -> Any:
    """Nodes and edges without the layers' names."""
    return sorted((k, type(v).__name__) for k, v in graph.nodes.items()), sorted(map(tuple, graph.edges))


@examples(max_examples=25)
@given(TEXTS)
@example("".join(EVIL))
def test_any_name_in_nir(text: str) -> None:
    """It is a string of the metadata, and the file is written and read."""
    nir = pytest.importorskip("nir")
    from ptq4snn.export.nir_form.export import nodes_of

    plan, model = for_nir()
    w = nodes_of(renamed_plan(plan, text), renamed(model, lambda name: f"{text}{name}"))
    graph, usual = nir.NIRGraph(w.nodes, w.edges, type_check=False), nodes_of(plan, model)
    with tempfile.TemporaryDirectory() as folder:
        nir.write(Path(folder) / "x.nir", graph)
        read = nir.read(Path(folder) / "x.nir", type_check=False)
    assert shape_of(read) == shape_of(nir.NIRGraph(usual.nodes, usual.edges, type_check=False))
    names = [n.metadata["q.name"] for n in read.nodes.values() if "q.name" in (n.metadata or {})]
    assert names and all(name.isprintable() for name in map(str, names))
    assert all(
        np.array_equal(a.weight, usual.nodes[k].weight) for k, a in read.nodes.items() if hasattr(a, "weight")
    )

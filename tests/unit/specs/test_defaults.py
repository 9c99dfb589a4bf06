"""What `init defaults` writes is what `load` reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.specs.reading.defaults import QUESTIONS, render_defaults
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build

ANSWERS = {
    "backend": "slurm",
    "engine": "",
    "image": "/images/vllm: new.sif",
    "slurm.partition": "gpu",
    "slurm.account": "yes",
    "slurm.qos": "0123",
    "slurm.endpoint.port": "9001",
}


def test_answers_become_values() -> None:
    text = render_defaults(ANSWERS)
    loaded = build(parse("model: m", "s.yaml"), defaults=parse(text, "d.yaml"))
    data = loaded.spec.model_dump()
    assert data["image"] == "/images/vllm: new.sif"
    assert data["engine"] == "vllm"
    backend = data["backend"]
    assert (backend["type"], backend["account"], backend["qos"]) == ("slurm", "yes", "0123")
    assert backend["endpoint"]["port"] == 9001


def test_the_text() -> None:
    assert render_defaults({"slurm.partition": "gpu", "engine": "sglang", "image": "a b"}) == (
        "# Defaults of remuda: command line, spec file and environment override them.\n"
        'slurm:\n  partition: gpu\nengine: sglang\nimage: "a b"\n'
    )


def test_every_question_is_a_field_and_every_offer_is_valid() -> None:
    answers = {question.key: question.default or "x" for question in QUESTIONS}
    for backend in ("local", "slurm", "lepton"):
        text = render_defaults({**answers, "backend": backend})
        assert build(parse("model: m", "s.yaml"), defaults=parse(text, "d.yaml")).kind == "swarm"


def test_an_unknown_path_is_an_error() -> None:
    with pytest.raises(InputError) as caught:
        render_defaults({"slurm.partitoin": "x"})
    assert str(caught.value) == "slurm.partitoin: unknown key 'partitoin' in the defaults"
    assert caught.value.hint == "did you mean 'partition'?"


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_any_answer_survives(answer: str) -> None:
    document = parse(render_defaults({"image": answer, "slurm.account": answer}), "d.yaml")
    assert document.data["image"] == answer
    assert document.data["slurm"]["account"] == answer

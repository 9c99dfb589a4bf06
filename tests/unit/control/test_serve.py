"""What is served when only the model is named."""

from __future__ import annotations

import pytest

from remuda.base.errors import InputError
from remuda.control import planning, serve


@pytest.mark.parametrize(
    ("model", "gpus", "engines"),
    [
        ("tiny.gguf", 8, ("llamacpp",)),
        ("models/Tiny.GGUF", 0, ("llamacpp",)),
        ("org/model", 2, ("vllm", "sglang", "transformers")),
        ("org/model", 0, ("transformers", "vllm")),
    ],
)
def test_engines(model: str, gpus: int, engines: tuple[str, ...]) -> None:
    assert serve.engines_for(model, gpus) == engines


@pytest.mark.parametrize(
    ("present", "replicas", "each"), [(0, 1, 0), (1, 1, 1), (8, 1, 8), (7, 1, 4), (8, 2, 4), (8, 3, 2), (1, 2, 0)]
)
def test_each_replica_gets_its_share_of_gpus(present: int, replicas: int, each: int) -> None:
    assert serve.gpus_for(present, replicas) == each


def test_a_machine_without_an_engine_says_which_were_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object, **__: object) -> None:
        raise InputError("there is no program", hint="pip install it", where=place)

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(planning, "plan_up", lacks)
    place = "engine_path"
    with pytest.raises(InputError, match=r"no engine for org/model \(looked for vllm or sglang or transf") as caught:
        serve.plan("org/model")
    assert caught.value.hint == "pip install it"
    with pytest.raises(InputError, match="there is no program"):
        serve.plan("org/model", engine="vllm")
    place = "port"
    with pytest.raises(InputError, match="port: there is no program"):
        serve.plan("org/model")
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.gguf'"):
        serve.plan("nowhere.gguf")

"""What is served when only the model is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.look import planning
from remuda.look.kinds import serve

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize(
    ("files", "found", "said"),
    [
        ([], "", ""),
        (["a.gguf"], "a.gguf", ""),
        (["A.GGUF", "config.json"], "A.GGUF", ""),
        (["a.gguf", "b.gguf"], "", "has several GGUF files: a.gguf, b.gguf"),
    ],
)
def test_a_folder_is_served_by_the_file_in_it(tmp_path: Path, files: list[str], found: str, said: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    if said:
        with pytest.raises(InputError, match=said):
            serve.gguf_of(str(tmp_path))
        return
    assert serve.gguf_of(str(tmp_path)) == (str(tmp_path / found) if found else "")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.gguf'"):
        serve.plan(planning.facts_of(), "nowhere.gguf")


def test_the_nearest_file_is_named(tmp_path: Path) -> None:
    for name in ("tiny-chat.gguf", "other.gguf", "tiny-chat.txt"):
        (tmp_path / name).touch()
    for asked, hint in (("tiny-chta.gguf", "did you mean 'tiny-chat.gguf'?"), ("zzz.gguf", "")):
        with pytest.raises(InputError, match="there is no file") as caught:
            serve.plan(planning.facts_of(), f"{tmp_path}/{asked}")
        assert caught.value.hint == hint


@pytest.mark.parametrize("files", [[], ["notes.txt"]])
def test_a_folder_without_a_model_is_told_as_one(tmp_path: Path, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="holds no model") as caught:
        serve.plan(planning.facts_of(), str(tmp_path))
    assert "config.json" in caught.value.hint

"""The folder of a model without weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from remuda.serving.folder import make_model_folder
from remuda.serving.tiny import printable_bytes

if TYPE_CHECKING:
    from pathlib import Path


def test_every_number_is_a_token_and_prompts_are_read_byte_by_byte(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    words = tokenizer["model"]["vocab"]
    assert sorted(words.values()) == list(range(size))
    assert list(words)[: len(printable_bytes())] == list(printable_bytes())
    assert tokenizer["model"]["merges"] == []
    end = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert [(token["id"], words[token["content"]]) for token in tokenizer["added_tokens"]] == [(end, end)]
    # What Dynamo's simulated engine answers with, as seen of version 1.6.0.
    assert set(range(1000, 2000)) < set(words.values()) - {end}

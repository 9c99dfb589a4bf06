"""A model's folder without weights: what a simulated engine and a frontend read of a model. Pure JSON, 60 KB."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from remuda.base.files import write_atomic
from remuda.serving.tiny import printable_bytes

if TYPE_CHECKING:
    from pathlib import Path

END: Final = "<|end|>"
TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
LONGEST: Final = 32_768
"""Tokens of a request, answer included."""
SIZE: Final = 2048
"""Of the vocabulary. Dynamo's simulated engine answers with numbers below this, whatever the tokenizer has; those that
it lacks are no text, and who measures would never see a first token."""


def make_model_folder(folder: Path) -> Path:
    """Write a tokenizer, a chat template and a shape of two layers; returns the folder.

    Prompts are read byte by byte; the tokens beyond are words that only an answer has.

    Args:
        folder: is made where it is missing; what is there is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in _files().items():
        write_atomic(folder / name, json.dumps(data, indent=1).encode())
    return folder


def _files() -> dict[str, Any]:
    letters = printable_bytes()
    end = SIZE - 1
    words = [*letters, *(f"Ġw{number}" for number in range(len(letters), end))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": end, "content": END, **special}],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                "vocab": {word: index for index, word in enumerate([*words, END])}, "merges": [],
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "chat_template": TEMPLATE,
            "model_max_length": LONGEST, "clean_up_tokenization_spaces": False,
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": SIZE,
            "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "torch_dtype": "bfloat16", "tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end,
        },
        "generation_config.json": {"bos_token_id": end, "eos_token_id": end},
    }  # fmt: skip

"""The options of `job submit`, drawn from the fields of a job: `src/remuda/cli/jobs/job_options.json`."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final

from remuda.batch.pipeline.order import ORDERS
from remuda.batch.request import JobRequest

_NAMES: Final = {
    "input": ["-i", "--input", "input_"], "output": ["-o", "--output", "output"],
    "output_columns": ["--output-column", "output_columns"], "resume": ["--no-resume", "no_resume"],
    "checkpointing": ["--no-checkpointing", "no_checkpointing"], "timeout_s": ["--timeout", "timeout"],
    "limit": ["-l", "--limit", "limit"], "id_column": ["--id-column", "--id-col", "id_column"],
}  # fmt: skip
"""Of options that are not named as their field alone."""
_TEXTS: Final = {"resume": "Discard the checkpoint and start over.", "checkpointing": "Write no checkpoint."}
_MORE: Final[dict[str, dict[str, Any]]] = {
    "input": {"required": True}, "output": {"required": True}, "output_columns": {"multiple": True},
    "retries": {"show_default": True}, "timeout_s": {"default": "600", "show_default": True},
    "order": {"type": ["auto", *sorted(one for one in ORDERS if one != "auto")], "show_default": True},
    "num_threads": {"type": {"min": 1}}, "limit": {"type": {"min": 1}, "default": None},
    "data_backend": {"show_default": True},
}  # fmt: skip
_OPTIONS: Final = (
    "input", "output", "input_column", "output_columns", "checkpoint_dir", "checkpoint_tag", "checkpoint_interval",
    "resume", "checkpointing", "retry_errors", "max_concurrency", "retries", "timeout_s", "order", "num_threads",
    "limit", "data_backend", "shard_output", "native_batch_size", "id_column",
)  # fmt: skip
"""Fields that the command line sets as they are."""


def drawn() -> str:
    """The file: a line for each option."""
    texts = _texts()
    found = {key: _option(key, _TEXTS.get(key) or texts[key]) for key in _OPTIONS}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(said)}" for key, said in found.items()) + "\n}\n"


def _option(key: str, text: str) -> list[Any]:
    """Names and settings of one option, as click has them."""
    field = next(one for one in fields(JobRequest) if one.name == key)
    names = _NAMES.get(key) or [f"--{key.replace('_', '-')}", key]
    if field.type == "bool":
        return [names, {"is_flag": True, "help": text}]
    more = {"type": {"min": 0}} if field.type == "int" else {}
    usual = {} if key in ("input", "output", "output_columns") else {"default": field.default}
    return [names, {**usual, **more, "help": text, **_MORE.get(key, {})}]


def _texts() -> dict[str, str]:
    """The docstring under each field."""
    (tree,) = ast.parse(inspect.getsource(JobRequest)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        str(one.target.id): " ".join(str(text.value.value).split())
        for one, text in pairwise(tree.body)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip

"""The options of `bench`, drawn from the fields of its document: `src/remuda/cli/bench/bench_options.json`."""

from __future__ import annotations

import json
import re
from typing import Any, Final, get_args

from remuda.base.units import show_duration
from remuda.specs.benchmark import BenchmarkSpec, QuestionFields
from remuda.specs.help import help_of

_SHORT: Final = {"name": "-n", "model": "-m", "concurrency": "-C"}
_NAMES: Final = {
    "endpoint": ["--endpoint", "--base-url", "endpoint"], "headers": ["--header", "headers"],
    "stream": ["--no-stream", "no_stream"], "api_key": ["--api-key-env", "api_key_env"],
    "hub_token": ["--hub-token-env", "hub_token_env"],
}  # fmt: skip
"""Of options that are not named as their field."""
_METAVARS: Final = {
    "api": "chat|completions", "trace": "FILE", "trace_unit": "s|ms|us", "headers": "NAME=VALUE", "extra_body": "JSON",
    "api_key": "VARIABLE", "hub_token": "VARIABLE", "tasks_dir": "DIR",
    "ca_file": "FILE", "prices": "FILE", "meta": "KEY=VALUE", "validity": "RULE=VALUE",
}  # fmt: skip
_TEXTS: Final = {
    "stream": "Request whole answers, which have no TTFT.",
    "endpoint": "URL of an OpenAI-compatible server (repeatable); the points of several alternate.",
    "trace": "Trace of arrivals and lengths: JSON Lines or CSV.",
    "prices": "Price list of your own (YAML).",
    "validity": "Threshold of a rule, e.g. V12.window=5s (repeatable).",
    "api_key": "Environment variable with the API key of the endpoint.",
    "hub_token": "Environment variable with the token of the Hugging Face hub, for gated questions.",
}
"""Of options that say the opposite of their field, a part of it, or the same in another form."""
_ASKED: Final = ("name", "endpoint", "model", "api", "concurrency", "api_key", "meta")
"""Fields that questions have, too."""
_REPEATED: Final = frozenset({"endpoint", "headers", "meta", "validity"})


def drawn() -> str:
    """The file of loads: a line for each option."""
    return _lines(
        [key for key in BenchmarkSpec.model_fields if key != "kind" and key not in QuestionFields.model_fields]
    )


def drawn_for_questions() -> str:
    """The same of questions: tasks are words without an option."""
    return _lines([*_ASKED, *(key for key in QuestionFields.model_fields if key != "tasks")]).replace(
        _text("concurrency"), "Requests in flight (default: as many as the endpoint can take)."
    )


def _lines(keys: list[str]) -> str:
    found = {key: _option(key) for key in keys}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(said)}" for key, said in found.items()) + "\n}\n"


def _option(key: str) -> list[Any]:
    """Names and settings of one option, as click has them."""
    field = BenchmarkSpec.model_fields[key]
    names = _NAMES.get(key) or [f"--{key.replace('_', '-')}", key]
    names = [*([_SHORT[key]] if key in _SHORT else []), *names]
    if field.annotation is bool:
        return [names, {"is_flag": True, "help": _text(key)}]
    kinds = {field.annotation, *get_args(field.annotation)}
    metavar = _METAVARS.get(key) or ("N" if int in kinds else "TIME" if key in ("duration", "timeout") else "TEXT")
    more = {"multiple": True} if key in _REPEATED else {}
    return [names, {"metavar": metavar, "help": _text(key), **more}]


def _text(key: str) -> str:
    text = _TEXTS.get(key) or " ".join(help_of(BenchmarkSpec, key).split())
    text = re.sub(r"`([^`]*)`", lambda word: _flag(word[1]), text)
    default = BenchmarkSpec.model_fields[key].default
    if (
        "default" in text
        or isinstance(default, bool)
        or not isinstance(default, (int, float, str))
        or default in (0, -1, "")
    ):
        return text
    shown = show_duration(default) if key == "timeout" and not isinstance(default, str) else default
    return f"{text.rstrip('.')} (default: {shown if isinstance(shown, str) else f'{shown:g}'})."


def _flag(word: str) -> str:
    return f"--{word.replace('_', '-')}" if word in BenchmarkSpec.model_fields else word

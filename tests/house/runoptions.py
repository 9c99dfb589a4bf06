"""The options of `run`, drawn from the fields of its document: `src/remuda/cli/runs/run_options.json`."""

from __future__ import annotations

import json
from typing import Any, get_args

from remuda.specs.help import help_of
from remuda.specs.run import ALIASES, FLAGS, SWITCHES, WITHOUT, RunSpec

_REPEATED = frozenset({"modules", "preamble", "partitions", "node_selector", "tolerations", "image_pull_secrets"})
_CHOICES = {
    "backend": ("local", "slurm", "fleet", "kubernetes"),
    "mode": ("run_once", "indefinite"),
    "prefer": ("max", "min"),
}
_HIDDEN = frozenset({"checkpoint_every", "checkpoint_cost", "restart_cost"})
_SHORT = {
    "name": "-n",
    "partitions": "-p",
    "account": "-A",
    "nodes": "-N",
    "cpus_per_task": "-c",
    "qos": "-q",
    "array": "-a",
}
_ENV = "Variable for the script: NAME=VALUE, or NAME for its value here; secrets are sent as files."


def drawn() -> str:
    """The file: a line for each option."""
    found = {key: _option(flag, key) for flag, key in FLAGS.items() if key != "secret_env"}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(said)}" for key, said in found.items()) + "\n}\n"


def _option(flag: str, key: str) -> list[Any]:
    """Names and settings of one option, as click has them; `type` is a list of choices."""
    text = " ".join(help_of(RunSpec, key).replace("`", "").split())
    others = [f"--{alias}" for alias, meant in ALIASES.items() if meant == key]
    names = [*([_SHORT[key]] if key in _SHORT else []), f"--{flag}", *others, key]
    if key == "env":
        return [names, {"multiple": True, "metavar": "NAME[=VALUE]", "help": _ENV}]
    if key in SWITCHES:
        both = f"--{flag}" if flag.startswith("no-") else f"--{flag}/--no-{flag}"
        return [[both, key], {"is_flag": True, "default": None, "help": text}]
    if key in WITHOUT:
        return [names, {"is_flag": False, "flag_value": WITHOUT[key], "metavar": "[FREQ]", "help": text}]
    if key in _CHOICES:
        return [names, {"type": _CHOICES[key], "help": text}]
    more = {"multiple": True, "default": ()} if key in _REPEATED else {"hidden": True} if key in _HIDDEN else {}
    return [names, {"metavar": _metavar(key), "help": text, **more}]


def _metavar(key: str) -> str:
    if key in ("min_vram", "max_vram"):
        return "GB"
    annotation = RunSpec.model_fields[key].annotation
    kinds = {annotation, *get_args(annotation)}
    return "N" if int in kinds else "TIME" if float in kinds else "TEXT"

"""The user's defaults file: fields of a swarm, sections for backends and runs; what `init defaults` asks. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from remuda.base.text import did_you_mean
from remuda.specs.backend import LeptonBackend, LocalBackend, PodBackend, SlurmBackend
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.fields import inside, model_at
from remuda.specs.reading.resolve import Layer, ValueOrigin, document_layer
from remuda.specs.run import RunSpec
from remuda.specs.swarm import EngineName, SwarmSpec

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pydantic import BaseModel

    from remuda.specs.reading.document import Document, Path

SECTIONS: dict[str, type[BaseModel]] = {
    "local": LocalBackend, "slurm": SlurmBackend, "kubernetes": PodBackend, "lepton": LeptonBackend,
}  # fmt: skip
"""Sections whose keys are fields of `backend`, used for swarms on that backend."""

RUN = "run"
"""Section whose keys are fields of a run."""
PODS = "kubernetes"
"""Section of which runs and gangs use the fields that all kinds have there."""
OF_RUNS = ("account", "qos", "exclude_nodes", "modules", "mail_user")
"""Keys of the section `slurm` that hold for runs, too."""


@dataclass(frozen=True)
class Question:
    """One question of `init defaults`."""

    key: str
    """Dotted path in the defaults file."""
    prompt: str
    default: str = ""
    """Offered to the user; an empty answer is left out of the file."""
    group: str = ""
    """Ask `Use <group>?` once before the first question of a group, unless it is the backend; empty: always ask."""
    choices: tuple[str, ...] = ()
    """All answers there are; empty for any text."""


QUESTIONS: tuple[Question, ...] = (
    Question("backend", "Where do swarms run if the file does not say it", "local", choices=tuple(SECTIONS)),
    Question("engine", "Engine", "vllm", choices=tuple(name for name in get_args(EngineName) if name != "command")),
    Question("slurm.partition", "Partition", group="slurm"),
    Question("slurm.account", "Account", group="slurm"),
    Question("slurm.qos", "Quality of service", group="slurm"),
    Question("image", "Singularity image of the engine", group="slurm"),
    Question("slurm.endpoint.nginx_image", "Singularity image with nginx", group="slurm"),
    Question("slurm.endpoint.port", "Port of the endpoint", "9000", "slurm"),
    Question("slurm.endpoint.poll_interval", "Seconds between two looks at the router's job", "10", "slurm"),
    Question("slurm.mail_user", "Address for mails from Slurm", group="slurm"),
    Question("lepton.workspace_id", "Workspace", group="lepton"),
    Question("lepton.endpoint.image", "Image of the server", "vllm/vllm-openai:latest", "lepton"),
    Question("lepton.endpoint.resource_shape", "Resource shape of the server", "gpu.8xh200", "lepton"),
    Question("lepton.job.image", "Image of batch jobs", "igeniusai/domyn-swarm:latest", "lepton"),
)


def render_defaults(answers: Mapping[str, str]) -> str:
    """The text of a defaults file with `answers` (dotted path -> value); empty ones are left out.

    Raises:
        InputError: a path is no field.
    """
    tree: dict[str, Any] = {}
    for key, answer in answers.items():
        if not answer:
            continue
        *parents, last = key.split(".")
        inside(tree, tuple(parents))[last] = answer
    _refuse_unknown([(path, Problem(key, "")) for key in answers for path in [tuple(key.split("."))]])
    head = "# Defaults of remuda: command line, spec file and environment override them.\n"
    return head + "".join(_lines(tree, 0))


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{key}:\n", *_lines(value, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key}: {_scalar(str(value))}\n")
    return lines


def _scalar(text: str) -> str:
    """Text as a YAML value; in quotes unless it is a plain word or number."""
    if text.lower() in ("null", "true", "false", "yes", "no", "on", "off", "y", "n"):
        return json.dumps(text)
    plain = text.replace(".", "").replace("-", "").replace("_", "").replace("/", "").isalnum()
    return text if plain and text.isascii() and text[0].isalnum() else json.dumps(text, ensure_ascii=False)


def sections(document: Document) -> tuple[Layer, dict[str, Layer]]:
    """Split a defaults file into the layer for all swarms and one per backend.

    Raises:
        InputError: unknown keys; all are named.
    """
    marks = []
    for path, mark in document.keys.items():
        where = f"{document.name}:{mark.line}:{mark.column}"
        marks.append((path, Problem(where, "", "", (mark.line, mark.column))))
    _refuse_unknown(marks)
    whole = document_layer(document, ValueOrigin.DEFAULTS)
    top = Layer(
        {key: value for key, value in document.data.items() if key not in (*SECTIONS, RUN, "kind")},
        {path: origin for path, origin in whole.values.items() if path[:1] not in _heads()},
        {path: origin for path, origin in whole.keys.items() if path[:1] not in _heads()},
    )
    return top, {name: _section(whole, name) for name in SECTIONS if isinstance(document.data.get(name), dict)}


def _heads() -> set[tuple[str, ...]]:
    return {(name,) for name in (*SECTIONS, RUN)}


def run_section(document: Document) -> Layer:
    """What a defaults file says for runs: its section `run`, and before that what of `slurm` holds for them.

    Raises:
        InputError: unknown keys; all are named.
    """
    sections(document)
    whole = document_layer(document, ValueOrigin.DEFAULTS)
    low, own = _only(whole.below(("slurm",)), OF_RUNS), whole.below((RUN,))
    values = {**low.values, **_only(own, own.data).values}
    return Layer({**low.data, **own.data}, values, values)


def pods_section(document: Document) -> Layer:
    """What a defaults file says of Kubernetes.

    Raises:
        InputError: unknown keys; all are named.
    """
    sections(document)
    return _only(document_layer(document, ValueOrigin.DEFAULTS).below((PODS,)), KubernetesFields.model_fields)


def _only(layer: Layer, names: Container[str]) -> Layer:
    """What a layer says of these keys."""
    data = {key: value for key, value in layer.data.items() if key in names}
    values = {path: origin for path, origin in layer.values.items() if path and path[0] in data}
    return Layer(data, values, values)


def _section(whole: Layer, name: str) -> Layer:
    def moved(origins: Mapping[Path, Any]) -> dict[Path, Any]:
        return {("backend", *path[1:]): origin for path, origin in origins.items() if path[:1] == (name,)}

    values = moved(whole.values)
    return Layer({"backend": {**whole.data[name], "type": name}}, values, moved(whole.keys))


def _refuse_unknown(paths: list[tuple[Path, Problem]]) -> None:
    problems = []
    for path, at in paths:
        known = _known(path)
        if known is None or path[-1] in known:
            continue
        hint = did_you_mean(str(path[-1]), known, f"known: {', '.join(sorted(known))}")
        problems.append(Problem(at.where, f"unknown key {str(path[-1])!r} in the defaults", hint, at.order))
    if problems:
        raise fail(problems)


def _known(path: Path) -> set[str] | None:
    """Keys that may stand beside `path`; None where any may, or where a key above is wrong already."""
    if len(path) == 1:
        return {*SwarmSpec.model_fields, *SECTIONS, RUN}
    if path[0] == RUN:
        owner = model_at(RunSpec, path[1:-1], {})
    elif path[0] in SECTIONS:
        owner = model_at(SECTIONS[str(path[0])], path[1:-1], {})
    elif path[0] == "backend":
        return None
    else:
        owner = model_at(SwarmSpec, path[:-1], {})
    return set(owner.model_fields) if owner else None

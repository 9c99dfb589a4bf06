"""The configuration reference, drawn from the specs: `python -m remuda.specs.docs > docs/configuration.md`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from remuda.base.settings import FROM_HERE, KNOWN, PREFIXES
from remuda.specs.benchmark import QuestionFields
from remuda.specs.help import help_of
from remuda.specs.kinds import KINDS
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.reading.defaults import OF_RUNS, QUESTIONS
from remuda.specs.reading.fields import submodels
from remuda.specs.service import ServiceFields
from remuda.specs.strict import Interval, Json, Seconds, SecretSource, Size, Text, Texts, Words

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

HEAD: Final = """\
# Configuration

<!-- Written by `python -m remuda.specs.docs > docs/configuration.md`. Change the docstrings in `src/remuda/specs`. -->

Every key is checked: an unknown one is an error with `file:line:column` and the nearest known key. Files are YAML or
JSON. `remuda config schema` prints a JSON Schema for editors, `remuda config show` every value and where it came from.

A value comes from the first of these that has one:

1. the command line (`--replicas 3`),
2. the spec file,
3. of a run, the `#REMUDA` and `#SHEPHERD` lines in the head of its script, then its `#SBATCH` lines,
4. the environment and `.env` files,
5. the defaults file (`~/.remuda/defaults.yaml`, or what `REMUDA_DEFAULTS` names),
6. the built-in default, below. Defaults in *italics* are derived, after all of the above is known.

Mappings (`env`, `watchdog`, …) are merged key by key over these layers; everything else is replaced. `null` unsets a
key: it hides a value of a lower layer.

- **text** may be written without quotes; `no`, `010` and `1:30` stay what you wrote.
- **duration**: seconds, or `90s`, `10m`, `1h30m`, `36:00:00`.
- **how often**: `10Hz`, `100ms`, or a number of milliseconds; `true` is 10 Hz.
- **words**: text that is split as a shell splits it, or a list that is not split. No shell ever sees them: `$(…)`, `*`
  and `~` arrive as they are.
- **secret**: `{file: PATH}` or `{env: NAME}`, read when it is used; of a variable on Kubernetes also
  `{secret: NAME/KEY}`, a Secret of the namespace, which remuda never reads. The value is never written anywhere.
"""
_NAMES: Final = (
    (Words, "words"),
    (Seconds, "duration"),
    (Size, "size"),
    (Interval, "how often"),
    (Text, "text"),
    (Texts, "list of text"),
    (Json, "anything"),
)
_PLAIN: Final = {int: "whole number", float: "number", bool: "true/false", str: "text"}


def render_docs() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind in KINDS.values():
        parts.append(f"## Kind `{kind.name}`\n")
        parts += [_table(model, path) for path, model in _models(kind.model)]
    for shared in (ServiceFields, KubernetesFields, QuestionFields):
        parts.append(f"## {shared.__name__}\n")
        parts += [_table(model, path) for path, model in _models(shared)]
    parts += [_defaults_file(), _environment()]
    return "\n".join(parts)


def _models(model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    """All models below one with the path where each is used, outermost first; each model once."""
    found: list[tuple[str, type[BaseModel]]] = [("", model)]
    for prefix, owner in found:
        for name, field in _own(owner).items():
            path = f"{prefix}.{name}".lstrip(".")
            for inner in submodels(field.annotation):
                if inner not in [known for _, known in found]:
                    found.append((path, inner))
    return found


def _own(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that a model says itself, and not only by what it is made of."""
    return {name: model.model_fields[name] for name in model.__annotations__ if name in model.model_fields}


def _table(model: type[BaseModel], path: str) -> str:
    title = f"### {model.__name__}\n\nUnder `{path}`. " if path else ""
    purpose = " ".join((model.__doc__ or "").split())
    rows = [
        f"| `{name}` | {type_name(field)} | {_default(field)} | {_cell(help_of(model, name))} |"
        for name, field in _own(model).items()
    ]
    base = model.__bases__[0].__name__
    above = f"\n\nThe fields of [{base}](#{base.lower()}), and these:" if base != "Strict" else ""
    return "\n".join(
        [f"{title}{purpose}{above}\n", "| Field | Type | Default | Purpose |", "| --- | --- | --- | --- |", *rows, ""]
    )


def type_name(field: FieldInfo) -> str:
    """The type of a field in the words of the page's head."""
    name = _type(field.annotation, field.metadata)
    bounds = [
        f"{sign} {value}"
        for item in field.metadata
        for key, sign in (("ge", "≥"), ("le", "≤"))
        if (value := getattr(item, key, None)) is not None
    ]
    return ", ".join([name, *bounds])


def _type(annotation: Any, metadata: list[Any]) -> str:
    for known, name in _NAMES:
        base, *marks = get_args(known)
        if annotation == known or (annotation == base and marks[0] in metadata):
            return name
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    args = [arg for arg in get_args(annotation) if arg is not type(None)]
    models = [_link(model) for model in submodels(annotation)]
    origin = get_origin(annotation)
    if origin is dict:
        return f"mapping of name to {_type(args[1], [])}"
    if origin is tuple:
        return f"list of {_type(args[0], [])}"
    if models:
        return " or ".join(models)
    if args and all(isinstance(arg, str) for arg in args):
        return ", ".join(f"`{arg}`" for arg in args)
    return _type(args[0], list(args[1:])) if args else "anything"


def _link(model: type[BaseModel]) -> str:
    return "secret" if issubclass(model, SecretSource) else f"[{model.__name__}](#{model.__name__.lower()})"


def _default(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "derived" in extra:
        return f"*{_cell(str(extra['derived']))}*"
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, BaseModel):
        return "see below"
    if value in ((), {}, ""):
        return "empty"
    if isinstance(value, float) and value.is_integer():
        return f"`{int(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "the shared file system" if isinstance(value, tuple) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _defaults_file() -> str:
    keys = ", ".join(f"`{question.key}`" for question in QUESTIONS)
    return (
        "## The defaults file\n\n"
        "Any field of a swarm; the sections `local`, `slurm`, `kubernetes` and `lepton` with fields of `backend` for\n"
        "swarms on that backend; the section `run` with fields of a run. Of `slurm`, "
        f"{', '.join(f'`{key}`' for key in OF_RUNS)} hold for runs, too.\n"
        "Of `kubernetes`, [fields of Kubernetes](#kubernetesfields) hold for runs and gangs there, too.\n"
        f"`remuda init defaults` asks for: {keys}.\n"
    )


def _environment() -> str:
    rows = [f"| `{PREFIXES[0]}{name}` | {_cell(text)} |" for name, text in KNOWN.items()]
    return "\n".join(
        [
            "## Environment\n",
            "Read from the process environment, `./.env` and `~/.remuda/.env`, in this order. The second may be",
            f"another user's: of it, only {', '.join(f'`{name}`' for name in sorted(FROM_HERE))} are.",
            f"`{PREFIXES[1]}…` names are read where the `REMUDA_…` ones are not set; `API_TOKEN`, `LEPTONAI_API_TOKEN`",
            "and `LEPTON_WORKSPACE_ID` as they are.\n",
            "| Variable | Purpose |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(render_docs())

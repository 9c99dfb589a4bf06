"""What a file is, by what it says: enough to choose the command that reads it. Loads no model of a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import read_whole
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCUMENTS: Final = frozenset({".yaml", ".yml", ".json"})
"""Endings of files that are documents; others are scripts."""


MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a document."""


def is_never_guessed(data: Mapping[str, object]) -> bool:
    """The shape of kinds that must be named."""
    del data
    return False


SHAPES: Final[dict[str, Callable[[Mapping[str, object]], bool]]] = {
    "swarm": lambda data: isinstance(data.get("model"), str),
    "run": lambda data: isinstance(data.get("script"), str),
    "pool": lambda data: isinstance(data.get("swarms"), list),
    "benchmark": is_never_guessed,
    "gang": is_never_guessed,
    "deployment": is_never_guessed,
}
"""Kind -> whether data without `kind` is surely of this one."""


def refuse_other(target: str, *wanted: str) -> None:
    """Refuse a file that surely is of another kind than `wanted`, whose reader would complain about every key of it.

    Raises:
        InputError: names the kind, and the command that starts it.
    """
    found = _kind(target)
    if found and found not in wanted:
        raise InputError(f"is a {found}, and a {wanted[0]} is needed here", hint=f"remuda up {target}", where=target)


def kind_in(target: str) -> str:
    """The kind of what a file says: a script is a run, and a document that says nothing is a recipe.

    Args:
        target: `FILE`, or `FILE:SELECTOR` of a recipe. What cannot be read is a swarm, whose reader says why.
    """
    found = _kind(target)
    return "swarm" if found is None else found or "deployment"


def holds_recipes(file: Path) -> bool:
    """Whether a document surely is a deployment, in its own words or as one or more recipes."""
    data = _read(file) or {}
    return data.get("kind") == "deployment" or {} in (data.get("model"), data.get("base"))


def _read(file: Path) -> dict[str, object] | None:
    """The top level of a document, None where it cannot be read."""
    try:
        return _top_level(read_whole(file, MOST_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError):
        return None


def _kind(target: str) -> str | None:
    """The same; empty where the file does not say it, None where it cannot be read."""
    file = Path(target).expanduser()
    name = file if file.exists() or ":" not in file.name else file.with_name(file.name.rpartition(":")[0])
    if name.suffix not in DOCUMENTS:
        return "run"
    if (data := _read(name)) is None:
        return None
    said = str(data.get("kind", ""))
    return said if said in SHAPES else next((kind for kind, is_shape in SHAPES.items() if is_shape(data)), "")


def _top_level(text: str) -> dict[str, object]:
    """The keys of a document with what their values are: text, or an empty list or mapping.

    Raises:
        ValueError: it is not YAML, or no mapping.
    """
    import yaml

    found: dict[str, object] = {}
    depth, key = 0, ""
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            is_list = isinstance(event, yaml.SequenceStartEvent)
            if depth == 1 and isinstance(event, yaml.NodeEvent):
                value: object = getattr(event, "value", [] if is_list else {})
                if key:
                    found[key], key = value, ""
                else:
                    key = str(value) or "''"
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if is_list and depth == 1:
                break
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not found:
        raise ValueError("no mapping")
    return found

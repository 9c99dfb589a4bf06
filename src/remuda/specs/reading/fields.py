"""Walks over the models of specs: what keys there are, and which model is meant at a place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from remuda.specs.reading.document import Path


def submodels(annotation: object) -> list[type[BaseModel]]:
    """All models that stand in a type, e.g. the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in submodels(part)]


def is_mapping(annotation: object) -> bool:
    """Whether the type is a mapping with keys of the user's own."""
    return getattr(annotation, "__origin__", None) is dict


def type_of(model: type[BaseModel]) -> str:
    """The model's value of `type`, by which unions tell their members apart; empty without."""
    field = model.model_fields.get("type")
    return str(field.default) if field is not None and isinstance(field.default, str) else ""


def model_at(model: type[BaseModel], path: Path, data: object) -> type[BaseModel] | None:
    """The model whose fields are the keys at `path` of `data`; None where keys are free or there are none."""
    current: type[BaseModel] | None = model
    free = False
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
        if free:
            free = False
            continue
        field = current.model_fields.get(str(part)) if current else None
        if field is None:
            return None
        current = choose(submodels(field.annotation), data)
        free = is_mapping(field.annotation)
    return None if free else current


def choose(options: list[type[BaseModel]], data: object) -> type[BaseModel] | None:
    """The member of a union that `data` means by its `type`, else the first."""
    named = data.get("type") if isinstance(data, dict) else None
    return next((option for option in options if type_of(option) == named), options[0] if options else None)


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel], FieldInfo]]:
    """All fields below `model` as (dotted path, owner, field), depth first; a union's members one after the other."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        yield path, model, field
        if not is_mapping(field.annotation):
            for inner in submodels(field.annotation):
                yield from walk(inner, f"{path}.")


def dotted(path: Path) -> str:
    """`a.b[0]` of a path."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def leaves(data: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of nested mappings that is no mapping itself, or an empty one."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, data


def inside(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The mapping at `path`, which is made where there is none."""
    for part in path:
        below = data.get(str(part))
        if not isinstance(below, dict):
            below = data[str(part)] = {}
        data = below
    return data


def lookup(data: Any, path: Path) -> Any:
    """The value at `path`, None where there is none."""
    current: Any = data
    for part in path:
        is_there = part in current if isinstance(current, dict) else _has_index(current, part)
        if not is_there:
            return None
        current = current[part]
    return current


def _has_index(value: object, part: str | int) -> bool:
    return isinstance(value, (list, tuple)) and isinstance(part, int) and part < len(value)

"""The JSON Schema for editors, the reference page, and the help texts that both are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from remuda.base.errors import InputError
from remuda.specs.docs import render_docs
from remuda.specs.help import help_of
from remuda.specs.kinds import KINDS
from remuda.specs.reading.fields import walk
from remuda.specs.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            yield from parts(inner) if key != "default" else ()
    elif isinstance(value, list):
        for inner in value:
            yield from parts(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_what_it_is_for(kind: str) -> None:
    silent = [path for path, owner, _ in walk(KINDS[kind].model) if not help_of(owner, path.split(".")[-1])]
    assert silent == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_holds_together(kind: str) -> None:
    schema = schema_of(kind)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["additionalProperties"] is False
    for part in parts(schema):
        if "$ref" in part:
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"]
        if isinstance(part.get("type"), str):
            assert part["type"] in TYPES
    for model in [schema, *schema["$defs"].values()]:
        assert all(field["description"] for field in model["properties"].values())
        assert set(model.get("required", [])) <= model["properties"].keys()


def test_what_files_may_say_shorter_is_in_the_schema() -> None:
    properties = schema_of("swarm")["properties"]
    assert {"type": "string"} in properties["backend"]["anyOf"]
    assert {"type": "string"} in properties["router"]["anyOf"]
    assert schema_of("swarm")["required"] == ["model"]
    assert "null" in properties["replicas"]["type"]
    assert "string" in properties["wait_endpoint_s"]["type"]


@pytest.mark.parametrize("kind", ["run", "gang"])
@pytest.mark.parametrize(
    ("backend", "is_right"),
    [
        ("kubernetes", True),
        ({"type": "kubernetes", "image": "r/t:1", "mounts": ["a:/x"], "node_selector": {"a": "b"}, "ttl": "2h"}, True),
        ({"image": "r/t:1"}, False),
        ({"type": "kubernetes", "imago": "r/t:1"}, False),
        ({"type": "kube"}, False),
        (7, False),
    ],
)
def test_a_backend_is_a_word_or_a_mapping(kind: str, backend: object, is_right: bool) -> None:
    document = {"kind": kind, "ranks": 2, "script": "train.py", "backend": backend}
    wrong = [*jsonschema_rs.validator_for(schema_of(kind)).iter_errors(document)]
    assert ([error for error in wrong if "backend" in error.instance_path] == []) is is_right


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(InputError, match="there is no document of kind 'x'"):
        schema_of("x")


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == render_docs(), "run: python -m remuda.specs.docs > docs/configuration.md"


def test_every_field_is_on_the_reference_page() -> None:
    page = render_docs()
    for kind in KINDS.values():
        names = {path.split(".")[-1] for path, _, _ in walk(kind.model)}
        assert [name for name in sorted(names) if f"| `{name}` |" not in page] == []

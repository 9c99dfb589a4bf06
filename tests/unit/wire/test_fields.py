from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from remuda.wire.fields import alike, known, names_of, read


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    port: int = 0
    words: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    node: str
    port: int = 0


class Shown(BaseModel):
    node: str
    port: int = 0


@pytest.mark.parametrize("kind", [Place, Pair, Shown])
def test_the_fields_of_records_of_all_kinds(kind: Any) -> None:
    assert [*names_of(kind)][:2] == ["node", "port"]
    assert known(kind, {"node": "n1", "colour": "red"}) == {"node": "n1"}
    assert alike(kind, Pair("n1", 4)) == {"node": "n1", "port": 4}


def test_of_several_records_the_last_one_counts() -> None:
    assert alike(Place, Pair("n1", 4), Place("n2", words=["a"])) == {"node": "n2", "port": 0, "words": ["a"]}


def test_a_record_is_read_without_what_newer_programs_write() -> None:
    assert read(Place, '{"node": "n1", "colour": "red"}', "a place") == Place("n1")


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "a place is a JSON object"), ("{", "Expecting"), ('{"port": 1}', "missing 1 required")],
)
def test_what_is_no_record(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(Place, text, "a place")

"""What is asked of a role, and what a group may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from remuda.plan.model import Command, Group, Role

TABLE = {
    Role.REPLICA: "serves answers works",
    Role.PREFILL: "serves works",
    Role.DECODE: "serves works",
    Role.ROUTER: "routes",
    Role.RELAY: "routes",
    Role.DRIVER: "works",
    Role.SCRIPT: "works",
    Role.RANK: "works",
    Role.RECORDER: "works",
    Role.SERVICE: "stays works",
    Role.GATE: "",
    Role.FRONTEND: "routes",
}


@pytest.mark.parametrize("role", Role)
def test_what_a_role_does(role: Role) -> None:
    does = [word for word in ("serves", "answers", "routes", "stays", "works") if getattr(role, word)]
    assert " ".join(does) == TABLE[role]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ports": {"Bootstrap": 1}}, {"ports": {"kv__events": 1}}, {"ports": {"kv_": 1}}, {"ports": {"kv": 65536}},
        {"command": {"argv": ["x"], "files": {"../x": ""}}}, {"command": {"argv": ["x"], "files": {".": ""}}},
    ],
)  # fmt: skip
def test_names_that_no_node_would_take_are_refused_at_once(wrong: dict[str, Any]) -> None:
    good = Group(name="a", role=Role.PREFILL, count=1, command=Command(argv=("x",)), ports={"kv_events": 7, "b": 0})
    assert Group.model_validate_json(good.model_dump_json()) == good
    with pytest.raises(ValidationError, match=r"pattern|less than"):
        Group.model_validate(good.model_dump() | wrong)

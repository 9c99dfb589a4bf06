"""What is asked of a role."""

from __future__ import annotations

import pytest

from remuda.plan.model import Role

TABLE = {
    Role.REPLICA: "serves answers works",
    Role.PREFILL: "serves works",
    Role.DECODE: "serves works",
    Role.ROUTER: "routes",
    Role.RELAY: "routes",
    Role.DRIVER: "works",
    Role.SCRIPT: "works",
    Role.RANK: "works",
}


@pytest.mark.parametrize("role", Role)
def test_what_a_role_does(role: Role) -> None:
    does = [word for word in ("serves", "answers", "routes", "works") if getattr(role, word)]
    assert " ".join(does) == TABLE[role]

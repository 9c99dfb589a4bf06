"""The router's numbers, asked for by a view."""

from __future__ import annotations

import pytest
from tests.unit.supervise.build import workload

from remuda.control.follow import RouterFollower
from remuda.plan.model import Endpoint, Front


@pytest.mark.parametrize("router", ["none", "of a newer version"])
async def test_where_no_router_is_followed_none_is_asked(router: str) -> None:
    bare = workload(endpoint=Endpoint(host="127.0.0.1", port=8000, model="m"))
    fronted = bare.model_copy(update={"front": Front(router=router, engine="command")})
    await RouterFollower({}).refresh(fronted.name, fronted)

"""The API's routes for a fleet, on the host's own socket: who may open that may do everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from remuda.fleet.token import LIFE_S, USES
from remuda.host.fleet.fleet import Fleet

Port = Annotated[int | None, Query(ge=1, le=65535)]


class BeginBody(BaseModel):
    """What the head of a fleet shall be; what is not said stays as it was."""

    port: Port = None
    http_port: Port = None
    model_port: Port = None
    address: str | None = None
    lease_s: float | None = None
    unpacked: str | None = None


class TokenBody(BaseModel):
    """A token that is wanted."""

    life_s: float = LIFE_S
    uses: int = USES


def add_fleet(router: APIRouter, fleet: Fleet, look: Callable[[], None]) -> None:
    """Add the routes; `look` asks at once what runs there."""

    @router.get("/fleet", summary="The fleet whose head this host is, with its nodes; empty where it is none")
    async def view() -> dict[str, Any]:
        return fleet.view()

    @router.post("/fleet", summary="Make this host the head of a fleet, or change its settings")
    async def begin(body: BeginBody) -> dict[str, Any]:
        return await fleet.begin(body.model_dump())

    @router.post("/fleet/stop", summary="Drain the nodes, and end the fleet's controller")
    async def end() -> None:
        await fleet.end()

    @router.post("/fleet/nodes/{name}/lost", summary="A machine is off: what ran there starts elsewhere at once")
    async def lost(name: str, force: bool = False) -> None:
        await fleet.lose(name, force=force)
        look()

    @router.get("/fleet/tokens", summary="Tokens, without what opens")
    async def tokens() -> list[dict[str, Any]]:
        return await fleet.tickets()

    @router.post("/fleet/tokens", summary="A new token, with which machines may join", status_code=201)
    async def mint(body: TokenBody) -> dict[str, Any]:
        return await fleet.mint(body.life_s, body.uses)

    @router.delete("/fleet/tokens/{name}", summary="Revoke a token; nodes that joined with it stay")
    async def revoke(name: str) -> dict[str, Any]:
        return await fleet.revoke(name)
